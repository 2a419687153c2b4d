# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What normal images look like as a whole: a Gaussian of one vector per image."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.utils.precision import at_least_float32

__all__ = ["ImageDensity", "ledoit_wolf"]


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
    values = features.double()
    mean = values.mean(0)
    centred = values - mean
    count, dim = centred.shape
    sample = centred.T @ centred / count
    target = sample.trace() / dim * torch.eye(dim, dtype=sample.dtype, device=sample.device)
    distance = (sample - target).square().sum()
    noise = (centred.square().sum(1).square().sum() / count - sample.square().sum()) / count
    shrinkage = float((noise / distance).clamp(0, 1)) if distance > 0 else 1.0
    return mean, (1 - shrinkage) * sample + shrinkage * target, shrinkage


class ImageDensity(nn.Module):
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

    mean: torch.Tensor
    precision: torch.Tensor
    num_images: torch.Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"dim must be positive, got {dim}")
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("precision", torch.eye(dim))
        self.register_buffer("num_images", torch.zeros((), dtype=torch.long))
        self.reset()

    def reset(self) -> None:
        """Forget what :meth:`update` has collected; a finalized density stays as it is."""
        self._collected: list[torch.Tensor] = []

    @torch.no_grad()
    def update(self, features: torch.Tensor) -> None:
        """
        Collect a batch of normal images.

        Args:
            features: ``(B, D)``.

        Raises:
            ValueError: when D differs, or a feature is NaN or infinite.
        """
        self._check(features)
        if not features.isfinite().all():
            raise ValueError("features of the batch are NaN or infinite: exclude these images")
        self._collected.append(at_least_float32(features.detach()))

    @torch.no_grad()
    def finalize(self) -> None:
        """
        Compute `mean` and `precision` from what was collected, and forget it.

        Raises:
            RuntimeError: with fewer than two images, or when all of them are equal.
        """
        features = self.collected()
        mean, precision = _gaussian(features)
        self.mean.copy_(mean)
        self.precision.copy_(precision)
        self.num_images.fill_(len(features))
        self.reset()

    def collected(self) -> torch.Tensor:
        """
        What :meth:`update` has collected so far, ``(n, D)``.

        Raises:
            RuntimeError: for fewer than two images.
        """
        count = sum(len(batch) for batch in self._collected)
        if count < 2:
            raise RuntimeError(f"the density has seen {count} image(s), a covariance needs at least 2: call update()")
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
            mean, precision = _gaussian(features[other])
            result[half] = _distances(features[half], mean.to(features), precision.to(features))
        return result

    @torch.no_grad()
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """
        Distances of new images: the larger, the more abnormal.

        Args:
            features: ``(B, D)``.

        Returns:
            ``(B,)``, >= 0; float32 for half precision.

        Raises:
            RuntimeError: before :meth:`finalize` (or loading a finalized one).
            ValueError: when D differs.
        """
        # a graph cannot branch on a value
        if not torch.compiler.is_exporting() and self.num_images == 0:
            raise RuntimeError("this ImageDensity has not been fitted: update() it with normal images and finalize()")
        self._check(features)
        features = at_least_float32(features)
        return _distances(features, self.mean.to(features.dtype), self.precision.to(features.dtype))

    def extra_repr(self) -> str:
        """Sizes for ``print(network)``."""
        return f"dim={self.mean.shape[0]}, num_images={int(self.num_images)}"

    def _check(self, features: torch.Tensor) -> None:
        if features.ndim != 2 or features.shape[1:] != self.mean.shape:
            raise ValueError(f"features have shape {tuple(features.shape)} instead of (B, {self.mean.shape[0]})")


def _gaussian(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean, covariance, _ = ledoit_wolf(features.cpu() if features.device.type == "mps" else features)
    if not covariance.trace() > 0:
        raise RuntimeError("the features of all normal images are equal: the network has collapsed")
    return mean, torch.cholesky_inverse(torch.linalg.cholesky(covariance))


def _distances(features: torch.Tensor, mean: torch.Tensor, precision: torch.Tensor) -> torch.Tensor:
    difference = features - mean.to(features.device)
    # rounding must not turn a square root into NaN
    return ((difference @ precision.to(features.device)) * difference).sum(-1).clamp_min(0).sqrt()
