# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Statistics of normal features: Gaussians of tokens and of images, and a memory of tokens."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import nn

from monai_afire.utils.precision import at_least_float32


class NormalStatistics(nn.Module):
    """
    Base of the statistics of normal images.

    ``update`` takes batches of normal images, ``finalize`` fits the buffers, a call measures new images. The state
    dict holds the fitted buffers alone, so finalize before saving.

    Args:
        shape: of one image's features, ``(L, D)`` or ``(D,)``.
    """

    num_images: torch.Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("num_images", torch.zeros((), dtype=torch.long))
        self.reset()

    @abstractmethod
    def reset(self) -> None:
        """Forget the updates; fitted buffers stay as they are."""

    @abstractmethod
    def update(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> None:
        """
        Add a batch of normal images.

        Args:
            features: ``(B, L, D)`` or ``(B, D)``.
            owners: ``(B,)`` whole numbers from 0; images of one number are copies of one. Without them each image has
                a number of its own.

        Raises:
            ValueError: when a size differs, or a feature is NaN or infinite.
        """

    @abstractmethod
    def finalize(self) -> None:
        """
        Fit the buffers to the updates so far.

        Raises:
            RuntimeError: for too few images, or when all are equal.
        """

    @abstractmethod
    def forward(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> torch.Tensor:
        """
        Distances of images: the larger, the more abnormal.

        Args:
            features: ``(B, L, D)`` or ``(B, D)``.
            owners: ``(B,)`` as for :meth:`update`, of images that may be among the normal ones: what is remembered of
                themselves and their copies does not count.

        Returns:
            ``(B, L)`` or ``(B,)``, >= 0; float32 for half precision.

        Raises:
            RuntimeError: before :meth:`finalize` (or loading a finalized one).
        """

    def check_finite(self, features: torch.Tensor) -> None:
        """Raise a ValueError for features of another shape, and for NaN or infinite ones."""
        if features.shape[1:] != self.shape:
            wanted = ", ".join(["B", *map(str, self.shape)])
            raise ValueError(f"features are {tuple(features.shape)} instead of ({wanted})")
        bad = (~features.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
        if bad:
            raise ValueError(
                f"features of image(s) {bad} of the batch are NaN or infinite: exclude these images"
            )

    def check_fitted(self) -> None:
        """Raise a RuntimeError before :meth:`finalize`, or before a finalized one is loaded."""
        # a graph cannot branch on a value
        if not torch.compiler.is_exporting() and self.num_images == 0:
            name = type(self).__name__
            raise RuntimeError(
                f"this {name} has not been fitted: call update() and finalize(), or load a fitted one"
            )


class _Gaussian(NormalStatistics):
    """Mahalanobis distance to a Gaussian with one covariance."""

    mean: torch.Tensor
    precision: torch.Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("precision", torch.eye(shape[-1]))

    @torch.no_grad()
    def forward(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> torch.Tensor:
        """Mahalanobis distances; owners make no difference."""
        self.check_fitted()
        return _distances(at_least_float32(features), self.mean, self.precision)

    def fit_gaussian(self, mean: torch.Tensor, covariance: torch.Tensor, count: int) -> None:
        """Fill the buffers from the statistics of so many images."""
        self.mean.copy_(mean)
        self.precision.copy_(_precision(covariance, count))
        self.num_images.fill_(count)


class TokenDensity(_Gaussian):
    r"""
    Mahalanobis distance of each token to the normal training images' tokens at its position.

    .. math::
        d_{ij} = \sqrt{(x_{ij} - \mu_j)^\top \Sigma^{-1} (x_{ij} - \mu_j)}, \qquad
        \Sigma = \frac{1 - \lambda}{(n - 1) L} \sum_{i,j} (x_{ij} - \mu_j)(x_{ij} - \mu_j)^\top + \lambda \sigma^2 I

    with :math:`\mu_j` the mean of position j over the n normal images, λ the shrinkage and σ² the mean variance (the
    trace of the first term's covariance over D).

    This is PaDiM (Defard et al., PaDiM: a Patch Distribution Modeling Framework, ICPR 2021 workshops) on tokens of a
    transformer, with one covariance for all positions instead of one for each, which few images are enough for.

    Args:
        num_tokens: L, number of token positions.
        dim: D, width of a token.
        shrinkage: λ in [0, 1], 0 for the plain covariance, 1 for a multiple of the identity.

    Example:
        >>> density = TokenDensity(num_tokens=1, dim=2, shrinkage=0.0)
        >>> density.update(torch.tensor([[[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, -1.0]], [[-1.0, -1.0]]]))
        >>> density.finalize()
        >>> density(torch.tensor([[[0.0, 0.0]], [[2.0, 0.0]]]))
        tensor([[0.0000],
                [1.7321]])
    """

    def __init__(self, num_tokens: int, dim: int, shrinkage: float = 0.05) -> None:
        super().__init__(num_tokens, dim)
        self.shrinkage = shrinkage

    def reset(self) -> None:
        """Forget the updates; fitted buffers stay as they are."""
        # plain attributes: `.half()` of the network would round buffers
        self._count = 0
        self._origin: torch.Tensor | float = 0.0
        self._sum: torch.Tensor | float = 0.0
        self._products: torch.Tensor | float = 0.0

    @torch.no_grad()
    def update(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> None:
        """Add a batch of normal images; owners make no difference."""
        self.check_finite(features)
        if not len(features):
            return
        device = "cpu" if features.device.type == "mps" else features.device
        values = features.detach().to(device).double()
        if not self._count:
            self._origin = values.mean(0)  # sums of squares about it keep their digits
        deviations = values - self._origin
        self._count += len(values)
        self._sum = self._sum + deviations.sum(0)
        self._products = self._products + deviations.flatten(0, 1).T @ deviations.flatten(0, 1)

    @torch.no_grad()
    def finalize(self) -> None:
        """Compute `mean` and `precision` from all updates so far; more may follow."""
        _check_count(self._count)
        mean = torch.as_tensor(self._sum) / self._count
        covariance = (self._products - self._count * mean.T @ mean) / (
            (self._count - 1) * len(mean)
        )
        variance = covariance.diagonal().mean()
        identity = torch.eye(len(covariance)).to(covariance)
        covariance = (1 - self.shrinkage) * covariance + self.shrinkage * variance * identity
        self.fit_gaussian(self._origin + mean, covariance, self._count)


class ImageDensity(_Gaussian):
    r"""
    Mahalanobis distance of an image's features to those of normal images.

    .. math:: d_i = \sqrt{(x_i - \mu)^\top \Sigma^{-1} (x_i - \mu)}

    with the covariance Σ of scikit-learn's ``LedoitWolf``, which is shrunk for few images (Ledoit and Wolf 2004). One
    vector per image, such as its mean token, shows what is spread over the image, not where it is.
    :class:`TokenDensity` has a mean for each position instead.

    Args:
        dim: D, number of features.

    Example:
        >>> density = ImageDensity(2)
        >>> density.update(torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]))
        >>> density.finalize()
        >>> density(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        tensor([0., 2.])
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)

    def reset(self) -> None:
        """Forget the updates; fitted buffers stay as they are."""
        self._features: list[torch.Tensor] = []

    @torch.no_grad()
    def update(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> None:
        """Add a batch of normal images; owners make no difference."""
        self.check_finite(features)
        self._features.append(at_least_float32(features.detach()))

    @torch.no_grad()
    def finalize(self) -> None:
        """Compute `mean` and `precision` from the updates, and forget these."""
        features = self._collected()
        self.fit_gaussian(*_ledoit_wolf(features), len(features))
        self.reset()

    @torch.no_grad()
    def held_out_distances(self, owners: torch.Tensor) -> torch.Tensor:
        """
        Distances of the updates' images to Gaussians that were fitted without them.

        Each half of the images is measured by a Gaussian of the other half. Distances to a Gaussian of the images
        themselves are too small to say what is usual.

        Args:
            owners: ``(n,)`` whole numbers; images of one number are copies of one and stay in one half.

        Returns:
            ``(n,)``; with fewer than four owners to the Gaussian of all.
        """
        features = self._collected()
        ranks = owners.to(features.device).unique(return_inverse=True)[1]
        if int(ranks.max()) < 3:
            return self._distances_to(features, features)
        result, even = features.new_zeros(len(features)), ranks % 2 == 0
        for measured in (even, ~even):
            result[measured] = self._distances_to(features[~measured], features[measured])
        return result

    def _collected(self) -> torch.Tensor:
        """All updates so far, ``(n, D)``."""
        _check_count(sum(map(len, self._features)))
        return torch.cat(self._features)

    @staticmethod
    def _distances_to(normal: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Distances of features to the Gaussian of normal ones."""
        mean, covariance = _ledoit_wolf(normal)
        return _distances(features, mean, _precision(covariance, len(normal)))


class NormalMemory(NormalStatistics):
    r"""
    Distance of each token's features to the nearest normal ones at its position.

    .. math:: d_{ij} = \frac{1}{k s} \sum_{n \in N_k(i, j)} \lVert W^\top x_{ij} - W^\top r_{nj} \rVert

    with :math:`r_{nj}` the features of normal image n at position j, :math:`N_k` its k nearest, W the principal
    components of the features' deviations from the mean of their position, and s the standard deviation per component.

    This is the memory bank of PatchCore (Roth et al., Towards Total Recall in Industrial Anomaly Detection, CVPR 2022)
    with three differences: one bank per position instead of one for all, since radiographs are aligned; the mean
    distance to k neighbors; and principal components instead of a coreset. Unlike a Gaussian
    (:class:`TokenDensity`) it knows that normal anatomy comes in kinds; it keeps the (projected) normal features
    themselves, in half precision.

    Args:
        num_tokens: L, number of token positions.
        in_dim: number of features of a token.
        dim: number of principal components that are kept, at most `in_dim`.
        capacity: R, how many normal images can be kept; of more, some are, evenly spread over their numbers.
        num_neighbors: k.

    Example:
        >>> memory = NormalMemory(num_tokens=1, in_dim=1, dim=1, capacity=4, num_neighbors=1)
        >>> memory.update(torch.tensor([[[0.0]], [[2.0]], [[4.0]]]))
        >>> memory.finalize()
        >>> (memory(torch.tensor([[[5.0]]])) * memory.scale).round(decimals=2)
        tensor([[1.]])
    """

    references: torch.Tensor
    projection: torch.Tensor
    scale: torch.Tensor
    owners: torch.Tensor

    def __init__(
        self,
        num_tokens: int,
        in_dim: int,
        dim: int = 32,
        capacity: int = 1024,
        num_neighbors: int = 3,
    ) -> None:
        super().__init__(num_tokens, in_dim)
        self.capacity = capacity
        self.num_neighbors = num_neighbors
        self.register_buffer(
            "references", torch.full((capacity, num_tokens, dim), torch.inf, dtype=torch.float16)
        )
        self.register_buffer("projection", torch.eye(in_dim, dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("owners", torch.full((capacity,), -1), persistent=False)

    def reset(self) -> None:
        """Forget the updates; fitted buffers stay as they are."""
        self._features: list[torch.Tensor] = []
        self._owners: list[torch.Tensor] = []

    @torch.no_grad()
    def update(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> None:
        """Add a batch of normal images."""
        self.check_finite(features)
        if owners is None:
            before = sum(map(len, self._features))
            owners = torch.arange(before, before + len(features))
        self._features.append(at_least_float32(features.detach()))
        self._owners.append(owners.to(features.device))

    @torch.no_grad()
    def finalize(self) -> None:
        """Find the principal components and keep the normal features along them."""
        owners = torch.cat(self._owners) if self._owners else torch.zeros(0)
        different = len(owners.unique())
        if min(different, self.capacity) <= self.num_neighbors:
            raise RuntimeError(
                f"{different} normal image(s) for {self.num_neighbors} neighbors: give more images"
            )
        features = torch.cat(self._features).float()
        self._find_components(features)
        places = torch.arange(min(len(owners), self.capacity), device=features.device)
        # by number, so that no image takes the room of others with its copies
        kept = owners.argsort(stable=True)[places * len(owners) // len(places)].sort().values
        self.references.fill_(torch.inf)
        self.references[: len(kept)] = self._project(features[kept]).to(self.references.dtype)
        self.owners.fill_(-1)
        self.owners[: len(kept)] = owners[kept]
        self.num_images.fill_(len(kept))
        self.reset()

    def _find_components(self, features: torch.Tensor) -> None:
        """Principal components of the deviations from the mean of each position, and their spread."""
        deviations = (features - features.mean(0)).flatten(0, 1).double()
        variances, components = torch.linalg.eigh(deviations.T @ deviations / len(deviations))
        dim = self.projection.shape[1]
        self.projection.copy_(components[:, -dim:])
        self.scale.copy_(variances[-dim:].mean().clamp_min(1e-12).sqrt())

    @torch.no_grad()
    def forward(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> torch.Tensor:
        """Mean distances to the nearest normal features at the same position, in standard deviations."""
        self.check_fitted()
        new = self._project(features).transpose(0, 1)
        known = self.references.to(new).transpose(0, 1)
        # rows without an image are infinitely far, which the faster way by matrix products would turn into NaN
        distances = torch.cdist(new, known, compute_mode="donot_use_mm_for_euclid_dist")
        if owners is not None:
            is_own = owners.to(self.owners)[:, None] == self.owners
            distances = distances.masked_fill(is_own, torch.inf)
        return distances.topk(self.num_neighbors, largest=False).values.mean(-1).T

    def _project(self, features: torch.Tensor) -> torch.Tensor:
        """Features along the principal components, in units of their spread."""
        values = at_least_float32(features)
        return values @ self.projection.to(values) / self.scale.to(values)


def _check_count(count: int) -> None:
    if count < 2:
        raise RuntimeError(f"{count} normal image(s), a covariance needs at least 2: give more")


def _ledoit_wolf(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and shrunk covariance of features (n, D), in float64 on the CPU."""
    # scikit-learn takes a second to import, and scoring images never needs it
    from sklearn.covariance import LedoitWolf

    fitted = LedoitWolf().fit(features.double().cpu().numpy())
    return torch.from_numpy(fitted.location_), torch.from_numpy(fitted.covariance_)


def _precision(covariance: torch.Tensor, count: int) -> torch.Tensor:
    """Inverse of the covariance of so many images, if it has one."""
    eigenvalues = torch.linalg.eigvalsh(covariance)
    if not eigenvalues[0] > len(covariance) * torch.finfo(torch.float64).eps * eigenvalues[-1]:
        remedy = "give more images; equal features mean that the network has collapsed"
        raise RuntimeError(f"the covariance of {count} normal images is singular: {remedy}")
    return torch.cholesky_inverse(torch.linalg.cholesky(covariance))


def _distances(features: torch.Tensor, mean: torch.Tensor, precision: torch.Tensor) -> torch.Tensor:
    """Mahalanobis distances along the last axis."""
    difference = features - mean.to(features)
    # rounding must not turn a square root into NaN
    return ((difference @ precision.to(features)) * difference).sum(-1).clamp_min(0).sqrt()
