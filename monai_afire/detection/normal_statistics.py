# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Statistics of normal features: Gaussians of tokens and of images, and a memory of tokens."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import nn

from monai_afire.utils.precision import at_least_float32

_IMAGES_AT_ONCE = 64  # in double precision


class NormalStatistics(nn.Module):
    """Base of the statistics of normal images: ``fit`` fills the buffers, a call measures new images."""

    num_images: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("num_images", torch.zeros((), dtype=torch.long))

    @abstractmethod
    def fit(self, features: torch.Tensor) -> None:
        """
        Take the statistics from normal images.

        Args:
            features: ``(N, L, D)`` of tokens or ``(N, D)`` of images.

        Raises:
            RuntimeError: for too few images, or when all are equal.
        """

    @abstractmethod
    def forward(self, features: torch.Tensor, numbers: torch.Tensor | None = None) -> torch.Tensor:
        """
        Distances of images: the larger, the more abnormal.

        Args:
            features: ``(B, L, D)`` or ``(B, D)``.
            numbers: ``(B,)`` rows that the images had in :meth:`fit`, where what is remembered of themselves must not
                count; None for new images.

        Returns:
            ``(B, L)`` or ``(B,)``, >= 0; float32 for half precision.

        Raises:
            RuntimeError: before :meth:`fit` (or loading a fitted one).
        """

    def check_fitted(self) -> None:
        """Refuse to measure before :meth:`fit`, or before a fitted one is loaded."""
        # a graph cannot branch on a value
        if not torch.compiler.is_exporting() and self.num_images == 0:
            raise RuntimeError(f"this {type(self).__name__} has not been fitted: fit or load one")


class _Gaussian(NormalStatistics):
    """Mahalanobis distance to a Gaussian with one covariance."""

    mean: torch.Tensor
    precision: torch.Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("precision", torch.eye(shape[-1]))

    @torch.no_grad()
    def forward(self, features: torch.Tensor, numbers: torch.Tensor | None = None) -> torch.Tensor:
        """Mahalanobis distances; numbers make no difference."""
        self.check_fitted()
        return _distances(at_least_float32(features), self.mean, self.precision)

    def _keep(self, mean: torch.Tensor, covariance: torch.Tensor, count: int) -> None:
        """Fill the buffers."""
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
        >>> density.fit(torch.tensor([[[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, -1.0]], [[-1.0, -1.0]]]))
        >>> density(torch.tensor([[[0.0, 0.0]], [[2.0, 0.0]]]))
        tensor([[0.0000],
                [1.7321]])
    """

    def __init__(self, num_tokens: int, dim: int, shrinkage: float = 0.05) -> None:
        super().__init__(num_tokens, dim)
        self.shrinkage = shrinkage

    @torch.no_grad()
    def fit(self, features: torch.Tensor) -> None:
        """Mean of each position, and the covariance of all."""
        count, num_tokens, dim = features.shape
        _check_count(count)
        if features.device.type == "mps":  # which has no double precision
            features = features.cpu()
        mean = features.mean(0, dtype=torch.float64)
        products = mean.new_zeros(dim, dim)
        for part in features.split(_IMAGES_AT_ONCE):
            deviations = (part.double() - mean).flatten(0, 1)
            products += deviations.T @ deviations
        covariance = products / ((count - 1) * num_tokens)
        variance = covariance.diagonal().mean()
        identity = torch.eye(dim).to(covariance)
        covariance = (1 - self.shrinkage) * covariance + self.shrinkage * variance * identity
        self._keep(mean, covariance, count)


class ImageDensity(_Gaussian):
    r"""
    Mahalanobis distance of an image's features to those of normal images.

    .. math:: d_i = \sqrt{(x_i - \mu)^\top \Sigma^{-1} (x_i - \mu)}

    with the covariance Σ of scikit-learn's ``LedoitWolf``, which is shrunk for few images (Ledoit and Wolf 2004). One
    vector per image, such as its mean token, shows what is spread over the image, not where it is.

    Args:
        dim: D, number of features.

    Example:
        >>> density = ImageDensity(2)
        >>> density.fit(torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]))
        >>> density(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        tensor([0., 2.])
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)

    @torch.no_grad()
    def fit(self, features: torch.Tensor) -> None:
        """Mean and covariance of the images."""
        self._keep(*_ledoit_wolf(features), len(features))

    @staticmethod
    @torch.no_grad()
    def held_out_distances(features: torch.Tensor) -> torch.Tensor:
        """
        Distances of normal images to Gaussians that were fitted without them.

        Every second image is measured by a Gaussian of the others. Distances to a Gaussian of the images themselves
        are too small to say what is usual.

        Args:
            features: ``(N, D)``.

        Returns:
            ``(N,)``; for fewer than four images to the Gaussian of all.
        """
        if len(features) < 4:
            return _distances_to(features, features)
        result = features.new_zeros(len(features))
        for first in (0, 1):
            result[first::2] = _distances_to(features[1 - first :: 2], features[first::2])
        return result


class MemoryBank(NormalStatistics):
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
        capacity: R, how many normal images can be kept; of more, evenly spread ones are.
        num_neighbors: k.

    Example:
        >>> memory = MemoryBank(num_tokens=1, in_dim=1, dim=1, capacity=4, num_neighbors=1)
        >>> memory.fit(torch.tensor([[[0.0]], [[2.0]], [[4.0]]]))
        >>> (memory(torch.tensor([[[5.0]]])) * memory.scale).round(decimals=2)
        tensor([[1.]])
    """

    references: torch.Tensor
    projection: torch.Tensor
    scale: torch.Tensor
    kept: torch.Tensor

    def __init__(
        self,
        num_tokens: int,
        in_dim: int,
        dim: int = 32,
        capacity: int = 1024,
        num_neighbors: int = 3,
    ) -> None:
        super().__init__()
        self.capacity = capacity
        self.num_neighbors = num_neighbors
        empty = torch.full((capacity, num_tokens, dim), torch.inf, dtype=torch.float16)
        self.register_buffer("references", empty)
        self.register_buffer("projection", torch.eye(in_dim, dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("kept", torch.full((capacity,), -1), persistent=False)

    @torch.no_grad()
    def fit(self, features: torch.Tensor) -> None:
        """Find the principal components and keep the normal features along them."""
        count = len(features)
        if min(count, self.capacity) <= self.num_neighbors:
            raise RuntimeError(
                f"{count} normal image(s) for {self.num_neighbors} neighbors: give more images"
            )
        features = at_least_float32(features)
        self._find_components(features.float())
        places = torch.arange(min(count, self.capacity), device=features.device)
        kept = places * count // len(places)
        self.references.fill_(torch.inf)
        self.references[: len(kept)] = self._project(features[kept]).to(self.references.dtype)
        self.kept.fill_(-1)
        self.kept[: len(kept)] = kept
        self.num_images.fill_(len(kept))

    def _find_components(self, features: torch.Tensor) -> None:
        """Principal components of the deviations from the mean of each position, and their spread."""
        deviations = (features - features.mean(0)).flatten(0, 1).double()
        variances, components = torch.linalg.eigh(deviations.T @ deviations / len(deviations))
        dim = self.projection.shape[1]
        self.projection.copy_(components[:, -dim:])
        self.scale.copy_(variances[-dim:].mean().clamp_min(1e-12).sqrt())

    @torch.no_grad()
    def forward(self, features: torch.Tensor, numbers: torch.Tensor | None = None) -> torch.Tensor:
        """Mean distances to the nearest normal features at the same position, in standard deviations."""
        self.check_fitted()
        new = self._project(features).transpose(0, 1)
        known = self.references.to(new).transpose(0, 1)
        # rows without an image are infinitely far, which the faster way by matrix products would turn into NaN
        distances = torch.cdist(new, known, compute_mode="donot_use_mm_for_euclid_dist")
        if numbers is not None:
            is_own = numbers.to(self.kept)[:, None] == self.kept
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

    _check_count(len(features))
    fitted = LedoitWolf().fit(features.double().cpu().numpy())
    return torch.from_numpy(fitted.location_), torch.from_numpy(fitted.covariance_)


def _distances_to(normal: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """Distances of features to the Gaussian of normal ones."""
    mean, covariance = _ledoit_wolf(normal)
    return _distances(features, mean, _precision(covariance, len(normal)))


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
