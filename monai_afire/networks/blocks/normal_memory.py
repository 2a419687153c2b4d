# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What was seen at each position of normal images, to be searched for the nearest."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.utils.precision import at_least_float32

__all__ = ["NormalMemory"]


class NormalMemory(nn.Module):
    r"""
    Distance of each token's features to the nearest normal ones at its position.

    .. math:: d_{ij} = \frac1k \sum_{n \in N_k(i, j)} \lVert (x_{ij} - r_{nj}) / s \rVert

    with :math:`r_{nj}` the features of normal image n at position j, :math:`N_k` its k nearest and s the standard
    deviation of each feature around the mean of its position. Unlike a Gaussian (:class:`TokenDensity`) it knows that
    normal anatomy comes in kinds, and needs no covariance; it keeps the normal features themselves, in half precision.

    Args:
        num_tokens: L, number of token positions.
        dim: number of features of a token; a few dozen, as all are kept.
        capacity: R, how many normal images can be kept.
        num_neighbors: k.

    Raises:
        ValueError: when a size is not positive.

    Example:
        >>> memory = NormalMemory(num_tokens=1, dim=1, capacity=4, num_neighbors=1)
        >>> memory.update(torch.tensor([[[0.0]], [[2.0]], [[4.0]]]))
        >>> memory.finalize()
        >>> (memory(torch.tensor([[[5.0]]])) * memory.scale).round(decimals=2)
        tensor([[1.]])
    """

    references: torch.Tensor
    scale: torch.Tensor
    num_images: torch.Tensor

    def __init__(self, num_tokens: int, dim: int, capacity: int = 1024, num_neighbors: int = 3) -> None:
        super().__init__()
        if min(num_tokens, dim, capacity, num_neighbors) < 1:
            sizes = (num_tokens, dim, capacity, num_neighbors)
            raise ValueError(f"num_tokens, dim, capacity and num_neighbors must be positive, got {sizes}")
        self.num_neighbors = num_neighbors
        self.register_buffer("references", torch.full((capacity, num_tokens, dim), torch.inf, dtype=torch.float16))
        self.register_buffer("scale", torch.ones(dim))
        self.register_buffer("num_images", torch.zeros((), dtype=torch.long))

    @property
    def capacity(self) -> int:
        """R, how many normal images can be kept."""
        return self.references.shape[0]

    def reset(self) -> None:
        """Forget everything."""
        self.references.fill_(torch.inf)
        self.scale.fill_(1.0)
        self.num_images.zero_()

    @torch.no_grad()
    def update(self, features: torch.Tensor) -> None:
        """
        Remember a batch of normal images; what exceeds the capacity is left out.

        Args:
            features: ``(B, L, dim)``, to be followed by :meth:`finalize` after the last batch.

        Raises:
            ValueError: when L or dim differ, or a feature is NaN or infinite.
        """
        self._check(features)
        if not features.isfinite().all():
            raise ValueError("features of the batch are NaN or infinite: exclude these images")
        start = int(self.num_images)
        kept = features[: self.capacity - start]
        self.references[start : start + len(kept)] = kept.to(self.references.dtype)
        self.num_images += len(kept)

    @torch.no_grad()
    def finalize(self) -> None:
        """
        Measure the scale of the features.

        Raises:
            RuntimeError: with no more images than neighbours, of which each image needs others.
        """
        count = int(self.num_images)
        if count <= self.num_neighbors:
            raise RuntimeError(f"{count} normal image(s) for {self.num_neighbors} neighbours: give more images")
        values = self.references[:count].float()
        deviation = (values - values.mean(0)).square().mean((0, 1)).sqrt()
        self.scale.copy_(deviation.clamp_min(1e-4))

    @torch.no_grad()
    def forward(self, features: torch.Tensor, remembered: bool = False) -> torch.Tensor:
        """
        Distances of new features: the larger, the more abnormal.

        Args:
            features: ``(B, L, dim)``.
            remembered: the images are in the memory; each one's nearest, itself, does not count.

        Returns:
            ``(B, L)``, >= 0, in standard deviations.

        Raises:
            RuntimeError: before :meth:`update` (or loading a fitted one).
            ValueError: when L or dim differ.
        """
        if self.num_images == 0:
            raise RuntimeError("this NormalMemory has not been fitted: update() it with normal images and finalize()")
        self._check(features)
        new = (at_least_float32(features) / self.scale).transpose(0, 1)  # (L, B, dim)
        known = (self.references.float() / self.scale).transpose(0, 1)  # (L, R, dim)
        # places not taken are infinitely far, which the faster way by matrix products would turn into NaN
        distances = torch.cdist(new, known, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.topk(self.num_neighbors + int(remembered), largest=False).values
        return nearest[..., int(remembered) :].mean(-1).T

    def extra_repr(self) -> str:
        """Sizes for ``print(network)``."""
        capacity, num_tokens, dim = self.references.shape
        return f"num_tokens={num_tokens}, dim={dim}, capacity={capacity}, num_neighbors={self.num_neighbors}"

    def _check(self, features: torch.Tensor) -> None:
        if features.ndim != 3 or features.shape[1:] != self.references.shape[1:]:
            raise ValueError(
                f"features have shape {tuple(features.shape)} instead of (B, L, dim) with (L, dim) = "
                f"{tuple(self.references.shape[1:])}"
            )
