# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Statistics of normal features: Gaussians of tokens and of images, and a memory of tokens."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.utils.distributed import all_reduce, world_size
from monai_afire.utils.precision import at_least_float32


class NormalStatistics(nn.Module):
    """
    What statistics of normal images share: ``update`` collects features, ``finalize`` fits buffers, a call measures.

    What :meth:`update` collects is not part of the state dict: finalize before saving.

    Args:
        shape: of one image's features, ``(L, D)`` or ``(D,)``.

    Raises:
        ValueError: when a size is not positive.
    """

    num_images: torch.Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        if min(shape) < 1:
            raise ValueError(f"all sizes must be positive, got {shape}")
        self.shape = shape
        self.register_buffer("num_images", torch.zeros((), dtype=torch.long))
        self.reset()

    def reset(self) -> None:
        """Forget what :meth:`update` has collected; fitted buffers stay as they are."""
        self._collected: list[torch.Tensor] = []

    @torch.no_grad()
    def update(self, features: torch.Tensor) -> None:
        """
        Collect a batch of normal images.

        Args:
            features: ``(B, L, D)`` or ``(B, D)``.

        Raises:
            ValueError: when a size differs, or a feature is NaN or infinite.
        """
        self.check_finite(features)
        self._collected.append(at_least_float32(features.detach()))

    def check_shape(self, features: torch.Tensor) -> None:
        """Raise a ValueError for features of another shape than the statistics are built for."""
        if features.ndim != len(self.shape) + 1 or features.shape[1:] != self.shape:
            wanted = ", ".join(["B", *map(str, self.shape)])
            raise ValueError(
                f"features have shape {tuple(features.shape)} instead of ({wanted}): build the statistics for this "
                "encoder and leave out class tokens"
            )

    def check_finite(self, features: torch.Tensor) -> None:
        """Raise a ValueError for features of another shape, and for NaN or infinite ones."""
        self.check_shape(features)
        bad = (~features.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
        if bad:
            raise ValueError(f"features of image(s) {bad} of the batch are NaN or infinite: exclude these images")

    def check_fitted(self) -> None:
        """Raise a RuntimeError before :meth:`finalize`, or before a finalized one is loaded."""
        # a graph cannot branch on a value
        if not torch.compiler.is_exporting() and self.num_images == 0:
            raise RuntimeError(
                f"this {type(self).__name__} has not been fitted: call update() on batches of normal images and then "
                "finalize(), or load the state dict of a finalized one"
            )

    def extra_repr(self) -> str:
        """Sizes for ``print(network)``."""
        return f"shape={self.shape}, num_images={int(self.num_images)}"


class _Gaussian(NormalStatistics):
    """Mahalanobis distance to a Gaussian with one covariance."""

    mean: torch.Tensor
    precision: torch.Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("precision", torch.eye(shape[-1]))

    @torch.no_grad()
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """
        Distances of new images: the larger, the more abnormal.

        Args:
            features: ``(B, L, D)`` or ``(B, D)``.

        Returns:
            ``(B, L)`` or ``(B,)``, >= 0; float32 for half precision.

        Raises:
            RuntimeError: before :meth:`finalize` (or loading a finalized one).
            ValueError: when a size differs.
        """
        self.check_fitted()
        self.check_shape(features)
        return _distances(at_least_float32(features), self.mean, self.precision)

    def set_gaussian(self, mean: torch.Tensor, precision: torch.Tensor, count: int) -> None:
        """Fill the buffers."""
        self.mean.copy_(mean)
        self.precision.copy_(precision)
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

    Fit it by :meth:`update` on batches of normal images in any order and one :meth:`finalize`. `mean`, `precision`
    and `num_images` are buffers and travel with the network; the running sums are not part of the state dict
    (finalize before saving). In a process group the fit covers the images of all ranks, each counted once per rank
    that saw it, and :meth:`finalize` must be called by every rank; ``all_ranks=False`` turns this off.

    Args:
        num_tokens: L, number of token positions.
        dim: D, width of a token.

    Raises:
        ValueError: when a size is not positive.

    Example:
        >>> density = TokenDensity(num_tokens=1, dim=2)
        >>> density.update(torch.tensor([[[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, -1.0]], [[-1.0, -1.0]]]))
        >>> density.finalize(shrinkage=0.0)
        >>> density(torch.tensor([[[0.0, 0.0]], [[2.0, 0.0]]]))
        tensor([[0.0000],
                [1.7321]])
    """

    def __init__(self, num_tokens: int, dim: int) -> None:
        super().__init__(num_tokens, dim)

    def reset(self) -> None:
        """Forget what :meth:`update` has collected; fitted buffers stay as they are."""
        # plain attributes: as buffers, `.half()` or `.float()` of the network would round them
        self._count = 0
        self._running_mean = torch.zeros(self.shape, dtype=torch.float64)
        self._scatter = torch.zeros(self.shape[-1], self.shape[-1], dtype=torch.float64)

    @torch.no_grad()
    def update(self, features: torch.Tensor) -> None:
        """
        Take in a batch of normal images, in float64 and without the cancellation of a plain sum of squares.

        Args:
            features: ``(B, L, D)``.

        Raises:
            ValueError: when L or D differ from the density's, or a token is NaN or infinite.
        """
        self.check_finite(features)
        if features.shape[0] == 0:
            return
        values = features.detach().to("cpu" if features.device.type == "mps" else features.device).double()
        mean, scatter = self._running_mean.to(values.device), self._scatter.to(values.device)
        batch_mean = values.mean(0)
        centred = (values - batch_mean).flatten(0, 1)
        shift = batch_mean - mean
        added = values.shape[0]
        total = self._count + added
        self._scatter = scatter + centred.T @ centred + (self._count * added / total) * (shift.T @ shift)
        self._running_mean = mean + shift * (added / total)
        self._count = total

    @torch.no_grad()
    def finalize(self, shrinkage: float = 0.01, all_ranks: bool = True) -> None:
        """
        Compute `mean` and `precision` from all updates so far; more updates and another call may follow.

        Args:
            shrinkage: λ in [0, 1], 0 for the plain covariance, 1 for a multiple of the identity.
            all_ranks: False covers the images of this process alone, for ranks that have all seen the same ones.

        Raises:
            ValueError: for a shrinkage out of range.
            RuntimeError: with fewer than two images, or when the covariance cannot be inverted.
        """
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"shrinkage must be in [0, 1], got {shrinkage}")
        own = self._count, self._running_mean, self._scatter
        count, mean, scatter = self._of_all_ranks() if all_ranks and world_size() > 1 else own
        _check_count(count)
        num_tokens, dim = mean.shape
        covariance = scatter / ((count - 1) * num_tokens)
        identity = torch.eye(dim, dtype=covariance.dtype, device=covariance.device)
        covariance = (1 - shrinkage) * covariance + shrinkage * covariance.trace() / dim * identity
        eigenvalues = torch.linalg.eigvalsh(covariance)
        if not eigenvalues[0] > dim * torch.finfo(torch.float64).eps * eigenvalues[-1]:
            raise RuntimeError(
                f"the covariance of {count} images' tokens is singular (eigenvalues from {eigenvalues[0]:.3g} to "
                f"{eigenvalues[-1]:.3g}, shrinkage {shrinkage}): fit on more images, or raise the shrinkage; if all "
                "tokens are equal, the network has collapsed"
            )
        self.set_gaussian(mean, torch.cholesky_inverse(torch.linalg.cholesky(covariance)), count)

    def _of_all_ranks(self) -> tuple[int, torch.Tensor, torch.Tensor]:
        # the collectives run where the module lives (a rank without images still has its sums on the CPU)
        running_mean = self._running_mean.to(self.mean.device)
        counts = all_reduce(torch.tensor([self._count], dtype=torch.float64, device=running_mean.device))
        mean = all_reduce(running_mean * self._count) / counts.clamp_min(1)
        shift = running_mean - mean
        scatter = all_reduce(self._scatter.to(shift.device) + self._count * (shift.T @ shift))
        return int(counts.item()), mean, scatter


def ledoit_wolf(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    r"""
    Mean and covariance of few samples of many numbers, shrunk as Ledoit and Wolf (2004) derive it.

    .. math::
        \Sigma = (1 - \lambda) S + \lambda \sigma^2 I, \qquad
        \lambda = \min\Bigl(1, \frac{\frac{1}{n^2} \sum_i \lVert x_i x_i^\top - S \rVert_F^2}
        {\lVert S - \sigma^2 I \rVert_F^2}\Bigr)

    with x centred, :math:`S = \frac1n \sum_i x_i x_i^\top` and σ² the mean of S's diagonal. The first norms come from
    :math:`\sum_i \lVert x_i \rVert^4 - n \lVert S \rVert_F^2`, so that no (D, D) matrix per sample is needed.

    Args:
        features: ``(n, D)``, n >= 2.

    Returns:
        Mean ``(D,)``, covariance Σ ``(D, D)`` and the shrinkage λ, in float64.

    Example:
        >>> features = torch.tensor([[1.0, 2.0], [-1.0, 2.0], [1.0, -2.0], [-1.0, -2.0]])
        >>> mean, covariance, shrinkage = ledoit_wolf(features)
        >>> mean, covariance.diagonal(), round(shrinkage, 3)
        (tensor([0., 0.], dtype=torch.float64), tensor([1.6667, 3.3333], dtype=torch.float64), 0.444)
    """
    # scikit-learn takes a second to import, and scoring images never needs it
    from sklearn.covariance import LedoitWolf

    fitted = LedoitWolf().fit(features.detach().double().cpu().numpy())
    return torch.from_numpy(fitted.location_), torch.from_numpy(fitted.covariance_), float(fitted.shrinkage_)


class ImageDensity(_Gaussian):
    r"""
    Mahalanobis distance of an image's features to those of normal images.

    .. math:: d_i = \sqrt{(x_i - \mu)^\top \Sigma^{-1} (x_i - \mu)}

    with Σ of :func:`ledoit_wolf`. One vector per image, such as its mean token, sees what is spread over the image and
    forgets where it was; PaDiM (Defard et al. 2021) has such a Gaussian at each position instead, see
    :class:`TokenDensity`.

    Fit it by :meth:`update` on batches of normal images and one :meth:`finalize`. `mean`, `precision` and `num_images`
    are buffers and travel with the network; what :meth:`update` has collected is not part of the state dict.

    Args:
        dim: D, number of features.

    Raises:
        ValueError: when D is not positive.

    Example:
        >>> density = ImageDensity(2)
        >>> density.update(torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]))
        >>> density.finalize()
        >>> density(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        tensor([0., 2.])
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)

    @torch.no_grad()
    def finalize(self) -> None:
        """
        Compute `mean` and `precision` from what was collected, and forget it.

        Raises:
            RuntimeError: with fewer than two images, or when all of them are equal.
        """
        features = self.collected()
        self.set_gaussian(*_shrunk_gaussian(features), len(features))
        self.reset()

    def collected(self) -> torch.Tensor:
        """
        What :meth:`update` has collected so far, ``(n, D)``.

        Raises:
            RuntimeError: for fewer than two images.
        """
        _check_count(sum(map(len, self._collected)))
        return torch.cat(self._collected)

    @torch.no_grad()
    def held_out_distances(self, owners: torch.Tensor) -> torch.Tensor:
        """
        Distances of the collected images to a Gaussian of those that it was not fitted on, one half to the other.

        A Gaussian is closer to the images that it was fitted on than to others; their spread says what is usual.

        Args:
            owners: ``(n,)`` whole numbers; images of one number are copies of one and stay in one half.

        Returns:
            ``(n,)``; with fewer than four owners to the Gaussian of all.
        """
        features = self.collected()
        ranks = owners.to(features.device).unique(return_inverse=True)[1]
        halves = [ranks % 2 == 0, ranks % 2 == 1] if int(ranks.max()) >= 3 else [torch.ones_like(ranks) > 0]
        result = features.new_zeros(len(features))
        for half in halves:
            other = ~half if len(halves) > 1 else half
            result[half] = _distances(features[half], *_shrunk_gaussian(features[other]))
        return result


class NormalMemory(NormalStatistics):
    r"""
    Distance of each token's features to the nearest normal ones at its position.

    .. math:: d_{ij} = \frac{1}{k s} \sum_{n \in N_k(i, j)} \lVert W^\top x_{ij} - W^\top r_{nj} \rVert

    with :math:`r_{nj}` the features of normal image n at position j, :math:`N_k` its k nearest, W the principal
    components of the features' deviations from the mean of their position, and s the standard deviation per component.

    This is the memory bank of PatchCore (Roth et al., Towards Total Recall in Industrial Anomaly Detection, CVPR 2022)
    with three differences: one bank per position instead of one for all, since radiographs are aligned; the mean
    distance to k neighbours; and principal components in the place of a coreset. Unlike a Gaussian
    (:class:`TokenDensity`) it knows that normal anatomy comes in kinds; it keeps the (projected) normal features
    themselves, in half precision.

    Fit it by :meth:`update` on batches of normal images and one :meth:`finalize`. The buffers travel with the network;
    what :meth:`update` has collected is not part of the state dict.

    Args:
        num_tokens: L, number of token positions.
        in_dim: number of features of a token.
        dim: number of principal components that are kept.
        capacity: R, how many normal images can be kept.
        num_neighbors: k.

    Raises:
        ValueError: when a size is not positive, or dim above in_dim.

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
        self, num_tokens: int, in_dim: int, dim: int = 32, capacity: int = 1024, num_neighbors: int = 3
    ) -> None:
        super().__init__(num_tokens, in_dim)
        if min(dim, capacity, num_neighbors) < 1 or dim > in_dim:
            raise ValueError(
                f"dim, capacity and num_neighbors must be positive and dim <= in_dim = {in_dim}, got {dim}, {capacity} "
                f"and {num_neighbors}"
            )
        self.capacity = capacity
        self.num_neighbors = num_neighbors
        self.register_buffer("references", torch.full((capacity, num_tokens, dim), torch.inf, dtype=torch.float16))
        self.register_buffer("projection", torch.eye(in_dim, dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("owners", torch.full((capacity,), -1), persistent=False)

    def reset(self) -> None:
        """Forget what :meth:`update` has collected; fitted buffers stay as they are."""
        super().reset()
        self._owners: list[torch.Tensor] = []

    @torch.no_grad()
    def update(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> None:
        """
        Collect a batch of normal images.

        Args:
            features: ``(B, L, in_dim)``.
            owners: ``(B,)`` whole numbers from 0; images of one number are copies of one. Without them each image has
                a number of its own.

        Raises:
            ValueError: when L or in_dim differ, or a feature is NaN or infinite.
        """
        if owners is None:
            before = sum(map(len, self._collected))
            owners = torch.arange(before, before + len(features))
        super().update(features)
        self._owners.append(owners.to(features.device))

    @torch.no_grad()
    def finalize(self) -> None:
        """
        Find the principal components and keep the normal features along them.

        Of more images than there is room for, some are kept, evenly spread over the order in which they came.

        Raises:
            RuntimeError: with no more images than neighbours, of which each image needs others.
        """
        count = sum(map(len, self._collected))
        different = len(torch.cat(self._owners).unique()) if count else 0
        if min(different, self.capacity) <= self.num_neighbors:
            raise RuntimeError(f"{different} normal image(s) for {self.num_neighbors} neighbours: give more images")
        features, owners = torch.cat(self._collected).float(), torch.cat(self._owners)
        deviations = (features - features.mean(0)).flatten(0, 1).double()
        variances, components = torch.linalg.eigh(deviations.T @ deviations / len(deviations))
        dim = self.projection.shape[1]
        self.projection.copy_(components[:, -dim:])
        self.scale.copy_(variances[-dim:].mean().clamp_min(1e-12).sqrt())
        kept = torch.arange(min(count, self.capacity), device=features.device) * count // min(count, self.capacity)
        self.references.fill_(torch.inf)
        self.references[: len(kept)] = self._project(features[kept]).to(self.references.dtype)
        self.owners.fill_(-1)
        self.owners[: len(kept)] = owners[kept]
        self.num_images.fill_(len(kept))
        self.reset()

    @torch.no_grad()
    def forward(self, features: torch.Tensor, owners: torch.Tensor | None = None) -> torch.Tensor:
        """
        Distances of new features: the larger, the more abnormal.

        Args:
            features: ``(B, L, in_dim)``.
            owners: ``(B,)`` as for :meth:`update`, of images that may be in the memory: their own features and those
                of their copies do not count.

        Returns:
            ``(B, L)``, >= 0, in standard deviations.

        Raises:
            RuntimeError: before :meth:`finalize` (or loading a finalized one).
            ValueError: when L or in_dim differ.
        """
        self.check_fitted()
        self.check_shape(features)
        new, known = self._project(features).transpose(0, 1), self.references.float().transpose(0, 1)
        # rows without an image are infinitely far, which the faster way by matrix products would turn into NaN
        distances = torch.cdist(new, known, compute_mode="donot_use_mm_for_euclid_dist")
        if owners is not None:
            distances = distances.masked_fill(owners.to(self.owners)[:, None] == self.owners, torch.inf)
        return distances.topk(self.num_neighbors, largest=False).values.mean(-1).T

    def _project(self, features: torch.Tensor) -> torch.Tensor:
        """Features along the principal components, in units of their spread."""
        return at_least_float32(features) @ self.projection / self.scale


def _check_count(count: int) -> None:
    if count < 2:
        raise RuntimeError(f"the density has seen {count} image(s), a covariance needs at least 2: call update()")


def _shrunk_gaussian(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and precision of features."""
    mean, covariance, _ = ledoit_wolf(features)
    if not covariance.trace() > 0:
        raise RuntimeError("the features of all normal images are equal: the network has collapsed")
    try:
        return mean, torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    except torch.linalg.LinAlgError as error:
        text = f"the covariance of the features of {len(features)} normal images is singular"
        raise RuntimeError(f"{text}: fit on more images, of different patients") from error


def _distances(features: torch.Tensor, mean: torch.Tensor, precision: torch.Tensor) -> torch.Tensor:
    """Mahalanobis distances along the last axis."""
    difference = features - mean.to(features)
    # rounding must not turn a square root into NaN
    return ((difference @ precision.to(features)) * difference).sum(-1).clamp_min(0).sqrt()
