# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The baseline encoder whose features are the pixels themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from monai_afire.networks.nets.encoders.radiograph_encoder import (
    GRAY_MEAN,
    GRAY_STD,
    RadiographEncoder,
)

RAW_PIXELS = "raw pixels"
"""The baseline's name in tables."""


class RawPixels(RadiographEncoder):
    """
    A baseline that takes an encoder's place: the token of a patch is the patch itself.

    Args:
        in_channels: channels of the images.
        img_size: spatial size of the images in pixels.
        patch_size: pixels per token along each axis.

    Example:
        >>> RawPixels(1, (32, 32), (8, 8))(torch.rand(2, 1, 32, 32)).shape
        torch.Size([2, 16, 64])
    """

    def __init__(
        self, in_channels: int, img_size: Sequence[int], patch_size: Sequence[int]
    ) -> None:
        width = in_channels * math.prod(patch_size)
        super().__init__(
            in_channels, tuple(img_size), tuple(patch_size), width, GRAY_MEAN, GRAY_STD
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Cut images ``(B, C, *S)`` in [0, 1] into patches: their normalized pixels, ``(B, L, D)``."""
        self.check_images(images)
        return self.to_patches(images)


def with_raw_pixels(encoders: Mapping[str, RadiographEncoder]) -> dict[str, RadiographEncoder]:
    """
    Put the baseline behind the encoders, with the geometry of the first of them and on its device.

    An encoder that bears the baseline's name stays as it is; without an encoder there is a ValueError.

    Example:
        >>> list(with_raw_pixels({"mine": RawPixels(1, (32, 32), (8, 8))}))
        ['mine', 'raw pixels']
    """
    if not encoders:
        raise ValueError("a study needs at least one encoder, got none")
    first = next(iter(encoders.values()))
    baseline = RawPixels(first.in_channels, first.img_size, first.patch_size).to(first.mean.device)
    return {**encoders, RAW_PIXELS: encoders.get(RAW_PIXELS, baseline)}
