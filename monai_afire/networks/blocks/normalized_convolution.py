# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Convolutions for dense heads, with a norm that works for one image and for maps of one pixel."""

from __future__ import annotations

from typing import Any

import torch
from monai.networks.blocks import Convolution

from monai_afire.utils.precision import at_least_float32, without_autocast

__all__ = ["group_norm_settings", "normalized_convolution"]

# the choice of Wu and He (ECCV 2018) where the number of groups is not fixed
CHANNELS_PER_GROUP = 16


def group_norm_settings(channels: int) -> tuple[str, dict[str, Any]]:
    """
    A group norm, as MONAI's blocks take it, with at least 16 channels per group.

    Not a batch norm, whose statistics are poor in small batches, nor an instance norm, which turns a map of one pixel
    into zeros: several channels share their statistics, so that even one pixel of one image has some.

    Args:
        channels: number of channels; fewer than 32 make one group.

    Returns:
        The argument ``norm`` of a block of MONAI.

    Example:
        >>> group_norm_settings(64), group_norm_settings(24)
        (('group', {'num_groups': 4}), ('group', {'num_groups': 1}))
    """
    most = max(channels // CHANNELS_PER_GROUP, 1)
    return "group", {"num_groups": next(number for number in range(most, 0, -1) if channels % number == 0)}


def normalized_convolution(spatial_dims: int, in_channels: int, out_channels: int, kernel_size: int) -> Convolution:
    """
    Convolution that keeps the size, group norm, ReLU.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the input.
        out_channels: channels of the output, at least 2.
        kernel_size: odd edge length of the kernel.

    Returns:
        A module that maps ``(B, in_channels, *S)`` to ``(B, out_channels, *S)``.

    Example:
        >>> import torch
        >>> normalized_convolution(2, 4, 8, kernel_size=3)(torch.rand(1, 4, 5, 6)).shape
        torch.Size([1, 8, 5, 6])
    """
    return _Convolution(
        spatial_dims,
        in_channels,
        out_channels,
        kernel_size=kernel_size,
        adn_ordering="NA",
        norm=group_norm_settings(out_channels),
        act="relu",
        bias=False,  # the norm has one
    )


class _Convolution(Convolution):
    """
    MONAI's block, in float32 for volumes that are thinner than the kernel, on a CPU.

    oneDNN, as of PyTorch 2.13 on CPUs with AVX-512 for bfloat16, leaves the gradient of such a kernel unwritten in
    bfloat16: it is whatever the memory held before, now and then huge, and clipping by the norm of all gradients then
    brings the others to zero.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_thin = x.ndim == 5 and x.shape[2] < self.get_parameter("conv.weight").shape[2]
        if not is_thin or x.device.type != "cpu":
            return super().forward(x)
        with without_autocast("cpu"):
            return super().forward(at_least_float32(x))
