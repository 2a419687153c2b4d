# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Copies of radiographs that stand for other scanners and habits, so that nothing is tuned on those."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from monai_afire.detection.field_of_view import moved

_ZOOM, _ASPECT, _TURN, _SHIFT = 0.3, 0.15, 0.1, 0.08
_GAMMA, _SHARPER, _BLURRED, _NOISE, _FLATTER = 0.7, 0.8, 1.0, 0.03, 0.5


class OtherScanners:
    """
    Copies with another place, frame, proportions, exposure, sharpness, noise and local contrast.

    Args:
        seed: of the draws.

    Example:
        >>> OtherScanners(0)(torch.rand(3, 1, 64, 64)).shape
        torch.Size([3, 1, 64, 64])
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def drawn(self, low: float, high: float, *shape: int) -> torch.Tensor:
        """Uniform random numbers."""
        return torch.rand(shape, generator=self.generator) * (high - low) + low

    def __call__(self, pictures: torch.Tensor) -> torch.Tensor:
        """
        One copy of each picture.

        Args:
            pictures: ``(B, 1, H, W)`` in [0, 1].

        Returns:
            The same shape, each from 0 to 1.
        """
        image = self._placed(pictures)
        count = len(image)
        image = image.clamp(1e-3, 1) ** self.drawn(-_GAMMA, _GAMMA, count, 1, 1, 1).exp()
        blurred = F.avg_pool2d(F.pad(image, (1, 1, 1, 1), mode="replicate"), 3, 1)
        image = image + self.drawn(-_SHARPER, _BLURRED, count, 1, 1, 1) * (blurred - image)
        noise = torch.randn(image.shape, generator=self.generator)
        image = image + _NOISE * self.drawn(0, 1, count, 1, 1, 1) * noise
        coarse = F.interpolate(F.adaptive_avg_pool2d(image, 6), image.shape[-2:], mode="bicubic")
        flat = coarse - coarse.mean((2, 3), keepdim=True)
        image = image - self.drawn(0, _FLATTER, count, 1, 1, 1) * flat
        low, high = image.amin((2, 3), keepdim=True), image.amax((2, 3), keepdim=True)
        return (image - low) / (high - low + 1e-6)

    def _placed(self, pictures: torch.Tensor) -> torch.Tensor:
        """Another field of view; half of the copies have a black frame where it is wider."""
        count = len(pictures)
        zoom = self.drawn(-_ZOOM, _ZOOM, count, 1) + self.drawn(-_ASPECT, _ASPECT, count, 2)
        turn, shift = self.drawn(-_TURN, _TURN, count), self.drawn(-_SHIFT, _SHIFT, count, 2)
        framed = self.drawn(0, 1, count, 1, 1, 1) < 0.5
        ways = [
            moved(pictures, zoom.exp(), turn, shift, "bilinear", way) for way in ("zeros", "border")
        ]
        return torch.where(framed, *ways)
