# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pyramid pooling: every place of a feature map sees the averages of the whole map and of its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from monai.networks.layers import Pool
from torch import nn

from monai_afire.networks.blocks.normalized_convolution import normalized_convolution

__all__ = ["PyramidPooling", "resize_features"]

LINEAR_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def resize_features(features: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """
    Interpolate linearly; the pixels' areas, not their centres, cover the same field before and after.

    Args:
        features: ``(B, C, *S)`` of 1 to 3 spatial dimensions.
        size: spatial size of the result.

    Returns:
        ``(B, C, *size)``.

    Example:
        >>> resize_features(torch.tensor([[[0.0, 4.0]]]), (4,))
        tensor([[[0., 1., 3., 4.]]])
    """
    if tuple(features.shape[2:]) == tuple(size):
        return features
    return F.interpolate(features, size=tuple(size), mode=LINEAR_MODES[features.ndim - 2], align_corners=False)


class PyramidPooling(nn.Module):
    """
    Pyramid pooling module (Zhao et al., CVPR 2017) as UPerNet uses it on the coarsest feature map.

    The map is averaged to grids of a few fixed sizes. Each grid goes through a 1 x 1 convolution and back to the map's
    size; all of them and the map itself are joined by a 3 x 3 convolution.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the map.
        channels: channels of each pooled grid and of the result, at least 2.
        pool_sizes: elements per axis of the grids. A grid larger than the map repeats elements, which costs time only.

    Raises:
        ValueError: when a size or the number of channels is too small.

    Example:
        >>> PyramidPooling(spatial_dims=2, in_channels=12, channels=8)(torch.rand(1, 12, 4, 5)).shape
        torch.Size([1, 8, 4, 5])
    """

    def __init__(
        self, spatial_dims: int, in_channels: int, channels: int, pool_sizes: Sequence[int] = (1, 2, 3, 6)
    ) -> None:
        super().__init__()
        if not pool_sizes or min(pool_sizes) < 1 or channels < 2:
            raise ValueError(
                "pyramid pooling needs one or more pool_sizes of at least 1 and at least 2 channels (the norm of a "
                f"single value is zero), got pool_sizes {tuple(pool_sizes)} and channels={channels}"
            )
        # ONNX has no pooling of volumes to a grid of a fixed size
        pool = _GridOfVolume if spatial_dims == 3 else Pool[Pool.ADAPTIVEAVG, spatial_dims]
        self.branches = nn.ModuleList(
            nn.Sequential(pool(size), normalized_convolution(spatial_dims, in_channels, channels, kernel_size=1))
            for size in pool_sizes
        )
        joined = in_channels + channels * len(pool_sizes)
        self.join = normalized_convolution(spatial_dims, joined, channels, kernel_size=3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """
        Add context.

        Args:
            features: ``(B, in_channels, *S)``.

        Returns:
            ``(B, channels, *S)``.
        """
        context = [resize_features(branch(features), features.shape[2:]) for branch in self.branches]
        return self.join(torch.cat([features, *context], dim=1))


class _GridOfVolume(nn.Module):
    """``nn.AdaptiveAvgPool3d`` by a matrix for each axis."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        for axis in (2, 3, 4):
            shares = _shares(features.shape[axis], self.size).to(features)
            features = torch.matmul(features.movedim(axis, -1), shares).movedim(-1, axis)
        return features


def _shares(length: int, size: int) -> torch.Tensor:
    """``(length, size)``: the share of each element in the averages, of parts that may overlap."""
    part, place = torch.arange(size), torch.arange(length)[:, None]
    start, end = part * length // size, -(-(part + 1) * length // size)
    inside = ((place >= start) & (place < end)).float()
    return inside / inside.sum(0)
