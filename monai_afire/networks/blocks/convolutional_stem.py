# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Convolutions in the place of a vision transformer's patch embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monai.networks.blocks import Convolution
from torch import nn

from monai_afire.networks.blocks.feature_pyramid import group_norm_settings


def convolutional_stem(
    in_channels: int, hidden_size: int, patch_size: Sequence[int]
) -> nn.Sequential:
    """
    Stack of 3 x 3 convolutions of stride 2, then one of 1 x 1 (Xiao et al., Early Convolutions, NeurIPS 2021).

    Each convolution halves the map and doubles the channels, with group normalization and ReLU, so that an image
    becomes one token for each patch.

    Args:
        in_channels: channels of the images.
        hidden_size: D, width of the tokens.
        patch_size: pixels per token along each axis; the same power of two, at least 2, for all.

    Returns:
        A module that maps ``(B, in_channels, *S)`` to ``(B, D, *grid)``.

    Raises:
        ValueError: for another patch, or a width that cannot be halved so often.

    Example:
        >>> import torch
        >>> convolutional_stem(1, 64, (8, 8))(torch.rand(2, 1, 32, 32)).shape
        torch.Size([2, 64, 4, 4])
    """
    patch = patch_size[0]
    halvings = patch.bit_length() - 1
    if patch < 2 or 2**halvings != patch or any(each != patch for each in patch_size):
        raise ValueError(
            f"a convolutional stem needs the same power of two as patch on all axes, got {patch_size}"
        )
    if hidden_size % 2 ** (halvings - 1) or hidden_size < 2**halvings:
        raise ValueError(
            f"hidden_size {hidden_size} is too small, or not a multiple of {2 ** (halvings - 1)}"
        )
    layers: list[nn.Module] = []
    for number in reversed(range(halvings)):
        channels = hidden_size // 2**number
        norm: dict[str, Any] = {
            "adn_ordering": "NA",
            "norm": group_norm_settings(channels),
            "act": "relu",
        }
        layers.append(
            Convolution(len(patch_size), in_channels, channels, strides=2, bias=False, **norm)
        )
        in_channels = channels
    layers.append(
        Convolution(len(patch_size), hidden_size, hidden_size, kernel_size=1, conv_only=True)
    )
    return nn.Sequential(*layers)
