# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Geometry of the grid crops: allowed offsets, resized boxes and their affine matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.utils import convert_to_dst_type, convert_to_tensor
from torch import Tensor
from torch.nn import functional as F


@lru_cache(maxsize=64)
def offset_pairs(cells: int, crops: tuple[int, int], min_overlap: int, align: int) -> np.ndarray:
    """All allowed pairs of cell offsets of two crops along one axis."""
    first, second = np.meshgrid(
        *(np.arange(max(cells - crop + 1, 0)) for crop in crops), indexing="ij"
    )
    overlap = np.minimum(first + crops[0], second + crops[1]) - np.maximum(first, second)
    pairs = np.argwhere((overlap >= min_overlap) & ((first - second) % align == 0))
    if not len(pairs):
        rule = f"an overlap of at least {min_overlap} and a relative offset that is a multiple of {align}"
        remedy = "take smaller crops, a larger grid (with jitter one cell per axis is lost) or a smaller min_overlap"
        raise ValueError(
            f"No two crops of {crops} cells fit into {cells} cells with {rule}: {remedy}."
        )
    pairs.flags.writeable = False
    return pairs


@torch.no_grad()
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
        lines = F.interpolate(
            lines, size=new_size, mode="bilinear", antialias=True, align_corners=False
        )
        shape[axis] = length
        image = lines.reshape(shape)
    return image


def cover_size(spatial_size: Sequence[int], target: Sequence[int]) -> list[int]:
    """Smallest size with (up to rounding) the aspect of ``spatial_size`` that covers ``target`` in every axis."""
    scale = max(goal / length for goal, length in zip(target, spatial_size, strict=True))
    return [
        max(round(length * scale), goal) for goal, length in zip(target, spatial_size, strict=True)
    ]


def float_values(image: Tensor) -> Tensor:
    """A plain copy or view of an image in float32, or in float64 if it has that type."""
    plain = convert_to_tensor(image, track_meta=False)
    return plain.to(torch.promote_types(plain.dtype, torch.float32))


def resized_box(
    values: Tensor, image: Tensor, start: np.ndarray, size: np.ndarray, out_size: Sequence[int]
) -> Any:
    """
    A box of ``values``, which show the whole of ``image``, at another size, with the type and metadata of the image.

    Integer images give the type of the values. The affine matrix of a MetaTensor follows.
    """
    sides = [slice(first, end) for first, end in zip(start, start + size, strict=True)]
    box = (slice(None), *sides)
    # a copy: a box that needs no resizing is a view of the values, perhaps of the image itself
    result = resize_separable(values[box], out_size)
    result = result.clone(memory_format=torch.contiguous_format)
    if image.is_floating_point():
        result = result.to(image.dtype)
    if not isinstance(image, MetaTensor):
        return result
    crop: MetaTensor = convert_to_dst_type(result, image, dtype=result.dtype)[0]
    to_image = np.asarray(image.shape[1:]) / np.asarray(values.shape[1:])
    scale = np.asarray(size) / np.asarray(out_size)
    first_pixel = (start + 0.5 * scale) * to_image - 0.5
    crop.affine = _moved_affine(image.affine, scale * to_image, first_pixel)
    return crop


def _moved_affine(affine: Tensor, scale: np.ndarray, first_pixel: np.ndarray) -> Tensor:
    """Affine matrix of a crop whose pixel p lies at ``first_pixel + scale * p`` of the image with the given matrix."""
    moved = affine.clone()
    dims = len(scale)
    if dims < affine.shape[-1]:
        moved[:, :dims] = affine[:, :dims] * torch.as_tensor(scale).to(affine)
        moved[:, -1] = affine[:, -1] + affine[:, :dims] @ torch.as_tensor(first_pixel).to(affine)
    return moved
