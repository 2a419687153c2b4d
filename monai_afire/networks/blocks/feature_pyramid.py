# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Blocks of networks for dense prediction: normed convolutions, pyramid pooling, feature pyramid, multi-scale neck."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from monai.networks.blocks import Convolution
from torch import nn

# the choice of Wu and He (ECCV 2018) where the number of groups is not fixed
CHANNELS_PER_GROUP = 16


def num_groups(channels: int) -> int:
    """How many groups a group norm has: as many as there can be with at least 16 channels each."""
    most = max(channels // CHANNELS_PER_GROUP, 1)
    return next(number for number in range(most, 0, -1) if channels % number == 0)


def normalized_convolution(in_channels: int, out_channels: int, kernel_size: int) -> Convolution:
    """Convolution that keeps the size, group norm, ReLU."""
    return Convolution(
        2,
        in_channels,
        out_channels,
        kernel_size=kernel_size,
        adn_ordering="NA",
        norm=("group", {"num_groups": num_groups(out_channels)}),
        act="relu",
        bias=False,  # the norm has one
    )


def resize_features(features: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Interpolate bilinearly; the pixels' areas, not their centers, cover the same field before and after."""
    if tuple(features.shape[2:]) == tuple(size):
        return features
    return F.interpolate(features, size=tuple(size), mode="bilinear", align_corners=False)


class PyramidPooling(nn.Module):
    """
    Pyramid pooling module (Zhao et al., CVPR 2017) as UPerNet uses it on the coarsest feature map.

    The map ``(B, in_channels, H, W)`` is averaged to grids of a few fixed sizes. Each grid goes through a 1 x 1
    convolution and back to the map's size; a 3 x 3 convolution joins all of them and the map itself to
    ``(B, channels, H, W)``.

    Args:
        in_channels: channels of the map.
        channels: channels of each pooled grid and of the result, at least 2.
        pool_sizes: elements per axis of the grids. A grid larger than the map repeats elements, which costs time only.
    """

    def __init__(
        self, in_channels: int, channels: int, pool_sizes: Sequence[int] = (1, 2, 3, 6)
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool2d(size),
                normalized_convolution(in_channels, channels, kernel_size=1),
            )
            for size in pool_sizes
        )
        joined = in_channels + channels * len(pool_sizes)
        self.join = normalized_convolution(joined, channels, kernel_size=3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Add context."""
        size = features.shape[2:]
        context = [resize_features(branch(features), size) for branch in self.branches]
        return self.join(torch.cat([features, *context], dim=1))


class FeaturePyramid(nn.Module):
    """
    Top-down pathway of a feature pyramid network (Lin et al., CVPR 2017) and UPerNet's fusion of its levels.

    A 1 x 1 convolution brings every finer map to the common width (lateral connection), then each level receives the
    next coarser one, enlarged. After a 3 x 3 convolution per level, all are enlarged to the finest and joined by
    another one. The coarsest map, in UPerNet from pyramid pooling, comes as it is to be used.

    Args:
        in_channels: channels of all maps ``(B, C_i, H_i, W_i)`` but the coarsest, finest first.
        channels: channels of the coarsest map, of every level and of the result ``(B, channels, H_0, W_0)``.
    """

    def __init__(self, in_channels: Sequence[int], channels: int) -> None:
        super().__init__()
        self.laterals = nn.ModuleList(
            normalized_convolution(width, channels, kernel_size=1) for width in in_channels
        )
        self.outputs = nn.ModuleList(
            normalized_convolution(channels, channels, kernel_size=3) for _ in in_channels
        )
        self.fuse = normalized_convolution(
            channels * (len(in_channels) + 1), channels, kernel_size=3
        )

    def forward(self, maps: Sequence[torch.Tensor]) -> torch.Tensor:
        """Fuse maps, finest first."""
        top_down = [maps[-1]]
        for lateral, features in zip(reversed(self.laterals), reversed(maps[:-1]), strict=True):
            top_down.insert(0, lateral(features) + resize_features(top_down[0], features.shape[2:]))
        levels = [output(level) for output, level in zip(self.outputs, top_down[:-1], strict=True)]
        finest = maps[0].shape[2:]
        return self.fuse(
            torch.cat([resize_features(level, finest) for level in (*levels, top_down[-1])], dim=1)
        )


class MultiScaleNeck(nn.Module):
    r"""
    A pyramid from maps that all have the stride of a ViT's patch, as dense heads for ViTs have it.

    Of n maps, map i is scaled by :math:`2^{n - 2 - i}`: four maps of a patch of 16 pixels come to strides 4, 8, 16 and
    32. Each doubling is a transposed convolution of 2 x 2 elements that halves the channels (as in ViTDet, Li et al.,
    ECCV 2022), with group norm and GELU between two of them; the coarsest map is the maximum over 2 x 2 elements. An
    axis is not doubled beyond one element per pixel, which concerns patches of less than four pixels only; of an odd
    number of elements the last has a pool of its own.

    Args:
        patch_size: stride of the maps along rows and columns.
        in_channels: channels of each map ``(B, C_i, H, W)``, finest of the pyramid first.

    Attributes:
        out_channels: channels of each map of the pyramid.

    Example:
        >>> neck = MultiScaleNeck(patch_size=(16, 16), in_channels=(24, 24, 24, 24))
        >>> [tuple(level.shape) for level in neck([torch.rand(1, 24, 7, 7)] * 4)]
        [(1, 6, 28, 28), (1, 12, 14, 14), (1, 24, 7, 7), (1, 24, 4, 4)]
    """

    def __init__(self, patch_size: Sequence[int], in_channels: Sequence[int]) -> None:
        super().__init__()
        self.scales = nn.ModuleList()
        self.out_channels: tuple[int, ...] = ()
        for level, channels in enumerate(in_channels):
            doublings = len(in_channels) - 2 - level
            if doublings < 0:
                # ceil_mode: a grid of one patch stays one
                self.scales.append(nn.MaxPool2d(2, stride=2, ceil_mode=True))
            else:
                self.scales.append(_enlarge(patch_size, channels, doublings))
            self.out_channels += (max(channels // 2 ** max(doublings, 0), 1),)

    def forward(self, maps: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Rescale maps of one size, finest of the pyramid first."""
        return [scale(features) for scale, features in zip(self.scales, maps, strict=True)]


def _enlarge(patch_size: Sequence[int], channels: int, doublings: int) -> nn.Sequential:
    """Transposed convolutions, each of which doubles the map and halves its channels."""
    layers: list[nn.Module] = []
    for doubling in range(doublings):
        if layers:
            layers += [nn.GroupNorm(num_groups(channels), channels), nn.GELU()]
        rows, columns = (2 if patch >= 2 ** (doubling + 1) else 1 for patch in patch_size)
        factor = (rows, columns)
        halved = max(channels // 2, 1)
        layers.append(nn.ConvTranspose2d(channels, halved, kernel_size=factor, stride=factor))
        channels = halved
    return nn.Sequential(*layers)
