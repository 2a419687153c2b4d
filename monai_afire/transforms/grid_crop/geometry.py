# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Arithmetic of the grid crops: allowed offsets, resizing and affine matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def check_positive(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Return the values as a tuple if all are whole numbers of at least 1."""
    if not values or any(isinstance(v, bool) or not isinstance(v, (int, np.integer)) or v < 1 for v in values):
        raise ValueError(f"{name} must be whole and at least 1 in every axis, got {tuple(values)}.")
    return tuple(int(v) for v in values)


@lru_cache(maxsize=64)
def offset_pairs(cells: int, crops: tuple[int, int], min_overlap: int, align: int) -> np.ndarray:
    """All allowed pairs of cell offsets of two crops along one axis."""
    first, second = np.meshgrid(*(np.arange(max(cells - crop + 1, 0)) for crop in crops), indexing="ij")
    overlap = np.minimum(first + crops[0], second + crops[1]) - np.maximum(first, second)
    pairs = np.argwhere((overlap >= min_overlap) & ((first - second) % align == 0))
    if not len(pairs):
        raise ValueError(
            f"No two crops of {crops} cells fit into {cells} cells with an overlap of at least {min_overlap} and a "
            f"relative offset that is a multiple of {align}: take smaller crops, a larger grid (with jitter one cell "
            f"per axis is lost) or a smaller min_overlap."
        )
    pairs.flags.writeable = False
    return pairs


def resize_separable(image: Tensor, size: Sequence[int]) -> Tensor:
    """Resize an image linearly, with antialiasing, one axis after the other, in any number of dimensions."""
    for axis, length in enumerate(size, start=1):
        if image.shape[axis] == length:
            continue
        shape = list(image.shape)
        tail = int(np.prod(shape[axis + 1 :]))
        # torch offers antialiasing for two axes only: this axis, and another one that keeps its length. The latter must
        # not be a last axis of length 1, for which torch 2.13 returns the first pixel of the line everywhere.
        lines = image.reshape((1, 1, -1, shape[axis]) if tail == 1 else (-1, 1, shape[axis], tail))
        new_size = (lines.shape[2], length) if tail == 1 else (length, tail)
        lines = F.interpolate(lines, size=new_size, mode="bilinear", antialias=True, align_corners=False)
        shape[axis] = length
        image = lines.reshape(shape)
    return image


def cover_size(spatial_size: Sequence[int], target: Sequence[int]) -> list[int]:
    """Smallest size with (up to rounding) the aspect of ``spatial_size`` that covers ``target`` in every axis."""
    scale = max(goal / length for goal, length in zip(target, spatial_size, strict=True))
    return [max(round(length * scale), goal) for goal, length in zip(target, spatial_size, strict=True)]


def moved_affine(affine: Tensor, scale: np.ndarray, first_pixel: np.ndarray) -> Tensor:
    """Affine matrix of a crop whose pixel p lies at ``first_pixel + scale * p`` of the image with the given matrix."""
    moved = affine.clone()
    dims = len(scale)
    if dims < affine.shape[-1]:
        moved[:, :dims] = affine[:, :dims] * torch.as_tensor(scale).to(affine)
        moved[:, -1] = affine[:, -1] + affine[:, :dims] @ torch.as_tensor(first_pixel).to(affine)
    return moved
