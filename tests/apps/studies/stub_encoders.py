# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders whose tokens are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from unit import tiny_networks

from monai_afire.networks import AFiRe, ViTEncoder
from monai_afire.networks.blocks.patches import patchify
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


def tiny_vit(size: int = 32, patch: int = 8, **options: Any) -> ViTEncoder:
    """A ViT with random weights, the same ones every time."""
    torch.manual_seed(0)
    return tiny_networks.tiny_vit(img_size=size, patch_size=patch, **options)


def tiny_afire(encoder: ViTEncoder | None = None, **options: Any) -> AFiRe:
    """An AFiRe network with eight clusters."""
    encoder = encoder or tiny_vit()
    sizes = {"head_dim": 16, "decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2}
    return AFiRe(encoder, num_clusters=8, **sizes, **options)


class PatchMeanEncoder(RadiographEncoder):
    """Token = mean of the patch per channel (D = C)."""

    def __init__(self, channels: int, img_size: Sequence[int], patch_size: Sequence[int]) -> None:
        super().__init__(channels, tuple(img_size), tuple(patch_size), channels, 0.0, 1.0)
        self.batches: list[int] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.check_images(images)
        assert not self.training
        assert not torch.is_grad_enabled()
        self.batches.append(len(images))
        return patchify(images, self.patch_size).unflatten(-1, (self.in_channels, -1)).mean(-1)


class PositionEncoder(RadiographEncoder):
    """Token = one direction for each position of the grid, whatever the image."""

    def __init__(self, img_size: Sequence[int], patch_size: Sequence[int]) -> None:
        grid = [s // p for s, p in zip(img_size, patch_size, strict=True)]
        super().__init__(1, tuple(img_size), tuple(patch_size), grid[0] * grid[1], 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.check_images(images)
        tokens = torch.eye(self.hidden_size).expand(len(images), -1, -1) * 1.7
        # rounding differs from batch to batch, as that of matrix products does
        return tokens + 1e-7 * len(images)


class ConstantEncoder(RadiographEncoder):
    """Everything has the same embedding: collapsed."""

    def __init__(self, size: int = 32) -> None:
        super().__init__(1, (size, size), (size, size), 4, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, -2.0, 0.5, 3.0]).expand(len(images), 1, -1)


def anatomy_images(
    shifts: torch.Tensor, img_size: Sequence[int], wave: float = 80.0
) -> torch.Tensor:
    """
    Images (M, 4, H, W) whose channels say which point of the anatomy a pixel shows, by cosine and sine.

    The anatomy's point a is at pixel a + shift; ``shifts`` (M, 2).
    """
    rows, columns = torch.meshgrid(
        *[torch.arange(s, dtype=torch.float32) for s in img_size], indexing="ij"
    )
    anatomy = torch.stack([rows, columns]) - shifts[:, :, None, None]
    angle = 2 * torch.pi * anatomy / wave
    return torch.cat([angle.cos(), angle.sin()], dim=1)
