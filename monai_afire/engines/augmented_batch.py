# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Augmentation of a whole batch on the training device, as a function ``prepare_batch`` of MONAI's engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from monai.engines.utils import PrepareBatch
from monai.transforms.utils import create_rotate, create_scale, create_translate
from monai.utils import CommonKeys

_SMALLEST = 1e-7  # as in MONAI's AdjustContrast


class PrepareBatchAugmented(PrepareBatch):
    """
    Hand image and label to the network, turned, scaled, moved, mirrored and of another contrast.

    Draws and results are those of MONAI's ``RandAffined``, ``RandFlipd`` and ``RandAdjustContrastd`` with bilinear
    interpolation and a repeated border, but all images of a batch are resampled at once, and only once. The draws are
    PyTorch's on the CPU, so the device never waits.

    Args:
        rotate: largest angle in radians, in both directions.
        scale: largest change of the size along each axis, as a share.
        shift: largest shift along each axis, as a share of the side.
        flip_prob: probability of mirroring left to right.
        gamma: smallest and largest exponent of the contrast.
        gamma_prob: probability of another contrast.
        moves_label: whether the label is a map ``(B, C, H, W)`` that moves with the image (nearest values).

    Example:
        >>> prepare_batch = PrepareBatchAugmented(flip_prob=0.5)
        >>> batch = {"image": torch.rand(2, 1, 32, 32), "label": torch.zeros(2, 3)}
        >>> image, label = prepare_batch(batch, "cpu")
        >>> image.shape, label.shape
        (torch.Size([2, 1, 32, 32]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        rotate: float = 0.15,
        scale: float = 0.15,
        shift: float = 1 / 16,
        flip_prob: float = 0.0,
        gamma: Sequence[float] = (0.7, 1.5),
        gamma_prob: float = 0.5,
        moves_label: bool = False,
    ) -> None:
        self.rotate, self.scale, self.shift, self.flip_prob = rotate, scale, shift, flip_prob
        self.gamma, self.gamma_prob = gamma, gamma_prob
        self.moves_label = moves_label

    def __call__(
        self,
        batchdata: Mapping[str, torch.Tensor],
        device: str | torch.device | None = None,
        non_blocking: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Move the batch to the device and change it."""
        image = batchdata[CommonKeys.IMAGE].to(device=device, non_blocking=non_blocking, **kwargs)
        label = batchdata[CommonKeys.LABEL].to(device=device, non_blocking=non_blocking, **kwargs)
        theta = _normalized(self.affine_matrices(len(image), image.shape[2:]), image.shape[2:])
        grid = F.affine_grid(
            theta.to(image, non_blocking=True), list(image.shape), align_corners=False
        )
        moved = F.grid_sample(
            image, grid, mode="bilinear", padding_mode="border", align_corners=False
        )
        if self.moves_label:
            values = F.grid_sample(
                label.to(grid), grid, mode="nearest", padding_mode="border", align_corners=False
            )
            label = values.to(label.dtype)
        return _contrast(moved, self.gammas(len(image)).to(moved, non_blocking=True)), label

    def affine_matrices(self, number: int, size: Sequence[int]) -> torch.Tensor:
        """
        Draw where the pixels of each image of a size (rows, columns) come from.

        Returns:
            ``(number, 3, 3)`` float64, in pixels about the center, as MONAI's ``AffineGrid`` has them.
        """
        draws = 2 * torch.rand(number, 5, dtype=torch.float64) - 1
        is_mirrored = torch.rand(number) < self.flip_prob
        matrices = []
        for (angle, *scales, down, right), mirrored in zip(
            draws.tolist(), is_mirrored.tolist(), strict=True
        ):
            factors = [1 + self.scale * each for each in scales]
            mirror = [1.0, -1.0 if mirrored else 1.0]
            shifts = [self.shift * size[0] * down, self.shift * size[1] * right]
            moved = (
                create_rotate(2, self.rotate * angle)
                @ create_translate(2, shifts)
                @ create_scale(2, factors)
            )
            matrices.append(torch.as_tensor(moved @ create_scale(2, mirror)))
        return torch.stack(matrices)

    def gammas(self, number: int) -> torch.Tensor:
        """Draw the exponent of each image, ``(number, 1, 1, 1)``; 1 for no change."""
        low, high = self.gamma
        exponents = low + (high - low) * torch.rand(number)
        is_changed = torch.rand(number) < self.gamma_prob
        return torch.where(is_changed, exponents, 1.0).reshape(-1, 1, 1, 1)


def _normalized(matrices: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Matrices (B, 2, 3) for ``affine_grid``, whose coordinates run from -1 to 1, columns first."""
    sides = torch.tensor([size[0] / 2, size[1] / 2, 1.0], dtype=matrices.dtype)
    normal = matrices * sides / sides.unsqueeze(1)
    order = [1, 0, 2]
    return normal[:, order][:, :, order][:, :2]


def _contrast(images: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """Each image between its own extremes, to the power of its exponent."""
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    extent = high - low
    return ((images - low) / (extent + _SMALLEST)).pow(exponents) * extent + low
