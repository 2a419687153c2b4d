# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Memory bank of normal features for each position, searched for the nearest neighbours (PatchCore-like)."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.utils.precision import at_least_float32

__all__ = ["NormalMemory"]


class NormalMemory(nn.Module):
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
    num_images: torch.Tensor
    owners: torch.Tensor

    def __init__(
        self, num_tokens: int, in_dim: int, dim: int = 32, capacity: int = 1024, num_neighbors: int = 3
    ) -> None:
        super().__init__()
        if min(num_tokens, in_dim, dim, capacity, num_neighbors) < 1 or dim > in_dim:
            sizes = (num_tokens, in_dim, dim, capacity, num_neighbors)
            raise ValueError(
                f"num_tokens, in_dim, dim, capacity and num_neighbors must be positive and dim <= in_dim, got {sizes}"
            )
        self.capacity = capacity
        self.num_neighbors = num_neighbors
        self.register_buffer("references", torch.full((capacity, num_tokens, dim), torch.inf, dtype=torch.float16))
        self.register_buffer("projection", torch.eye(in_dim, dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("num_images", torch.zeros((), dtype=torch.long))
        self.register_buffer("owners", torch.full((capacity,), -1), persistent=False)
        self.reset()

    def reset(self) -> None:
        """Forget what :meth:`update` has collected; a finalized memory stays as it is."""
        self._collected: list[torch.Tensor] = []
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
        self._check(features)
        if not features.isfinite().all():
            raise ValueError("features of the batch are NaN or infinite: exclude these images")
        if owners is None:
            before = sum(len(batch) for batch in self._collected)
            owners = torch.arange(before, before + len(features))
        self._collected.append(features.detach().float())
        self._owners.append(owners.to(features.device))

    @torch.no_grad()
    def finalize(self) -> None:
        """
        Find the principal components and keep the normal features along them.

        Of more images than there is room for, some are kept, evenly spread over the order in which they came.

        Raises:
            RuntimeError: with no more images than neighbours, of which each image needs others.
        """
        count = sum(len(batch) for batch in self._collected)
        different = len(torch.cat(self._owners).unique()) if count else 0
        if min(different, self.capacity) <= self.num_neighbors:
            raise RuntimeError(f"{different} normal image(s) for {self.num_neighbors} neighbours: give more images")
        features, owners = torch.cat(self._collected), torch.cat(self._owners)
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
        # a graph cannot branch on a value
        if not torch.compiler.is_exporting() and self.num_images == 0:
            raise RuntimeError("this NormalMemory has not been fitted: update() it with normal images and finalize()")
        self._check(features)
        new, known = self._project(features).transpose(0, 1), self.references.float().transpose(0, 1)
        # rows without an image are infinitely far, which the faster way by matrix products would turn into NaN
        distances = torch.cdist(new, known, compute_mode="donot_use_mm_for_euclid_dist")
        if owners is not None:
            distances = distances.masked_fill(owners.to(self.owners)[:, None] == self.owners, torch.inf)
        return distances.topk(self.num_neighbors, largest=False).values.mean(-1).T

    def extra_repr(self) -> str:
        """Sizes for ``print(network)``."""
        num_tokens, dim = self.references.shape[1:]
        return f"num_tokens={num_tokens}, dim={dim}, capacity={self.capacity}, num_neighbors={self.num_neighbors}"

    def _project(self, features: torch.Tensor) -> torch.Tensor:
        return at_least_float32(features) @ self.projection / self.scale

    def _check(self, features: torch.Tensor) -> None:
        expected = (self.references.shape[1], self.projection.shape[0])
        if features.ndim != 3 or features.shape[1:] != expected:
            raise ValueError(
                f"features have shape {tuple(features.shape)} instead of (B, L, in_dim) with (L, in_dim) = {expected}"
            )
