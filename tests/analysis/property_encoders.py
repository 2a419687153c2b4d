# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders without any composition."""

from __future__ import annotations

import zlib

import torch

from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder


class HashEncoder(RadiographEncoder):
    """Every picture has a random embedding of its own, whatever it looks like."""

    def __init__(self, size: int = 32, channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.set_interface(channels, (size, size), (size, size), width, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.check_images(images)
        seeds = [zlib.crc32(picture.numpy().tobytes()) for picture in images]
        return torch.stack([torch.randn(1, self.hidden_size, generator=_seeded(seed)) for seed in seeds])


class ConstantEncoder(RadiographEncoder):
    """Everything has the same embedding: collapsed."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.set_interface(1, (size, size), (size, size), 4, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, -2.0, 0.5, 3.0]).expand(len(images), 1, -1)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
