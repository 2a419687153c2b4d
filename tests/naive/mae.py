# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The masked autoencoder's loss (He et al., section 3) as plain loops in float64, written from the paper alone.

Letters: B images, N patches of an image, P pixels per patch (2-D, one channel).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["masked_loss", "normalized_patch", "patch_of"]


def patch_of(image: Tensor, place: int, patch_size: int) -> Tensor:
    """Pixels (P,) of one patch of an image (H, W), places counted row by row."""
    per_row = image.shape[1] // patch_size
    top, left = place // per_row * patch_size, place % per_row * patch_size
    return torch.stack(
        [
            image[top + row, left + column]
            for row in range(patch_size)
            for column in range(patch_size)
        ]
    )


def normalized_patch(pixels: Tensor) -> Tensor:
    """Less its mean, by its (unbiased) standard deviation; 1e-6 is added to the variance as in the authors' code."""
    pixels = pixels.double()
    mean = sum(pixels) / len(pixels)
    variance = sum((pixel - mean) ** 2 for pixel in pixels) / (len(pixels) - 1)
    return (pixels - mean) / (variance + 1e-6) ** 0.5


def masked_loss(
    images: Tensor, predictions: Tensor, visible: list[list[int]], patch_size: int, normalize: bool
) -> Tensor:
    """Mean squared error over the pixels of the patches that are not visible, image by image, patch by patch.

    Takes images (B, H, W) in the intensity of the target and predictions (B, N, P).
    """
    total, count = torch.zeros((), dtype=torch.float64), 0
    for image, prediction, seen in zip(images.double(), predictions, visible, strict=True):
        for place in range(len(prediction)):
            if place in seen:
                continue
            target = patch_of(image, place, patch_size)
            target = normalized_patch(target) if normalize else target
            squares = [
                (y - x) ** 2 for y, x in zip(prediction[place].double(), target, strict=True)
            ]
            total = total + sum(squares) / len(squares)
            count += 1
    return total / count
