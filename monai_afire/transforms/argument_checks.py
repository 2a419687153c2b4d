# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of images and settings that several transforms share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from monai.utils import ensure_tuple
from torch import Tensor

Number = TypeVar("Number", int, float)

ROUNDING = 1e-4  # how far images may leave [0, 1]: resampling and float16 do


def check_shape(images: Tensor, batched: bool = False, spatial_dims: Sequence[int] = ()) -> None:
    """Refuse images with an empty axis, without spatial axes, or with another number of them."""
    dims = images.ndim - 1 - batched
    if 0 in images.shape or dims < 1 or (spatial_dims and dims not in spatial_dims):
        expected = f"{'(B, C, *S)' if batched else '(C, *S)'} with no empty axis"
        if spatial_dims:
            expected += f" and {' or '.join(map(str, spatial_dims))} spatial dimensions"
        found = f"The image must be {expected}, got shape {tuple(images.shape)}"
        raise ValueError(f"{found}. Add a missing channel axis with EnsureChannelFirst.")


def check_image_range(
    images: Tensor,
    batched: bool = False,
    validate: bool | None = None,
    spatial_dims: Sequence[int] = (2, 3),
) -> None:
    """Refuse images that are not floating-point in [0, 1]; None checks values on a CPU only: a GPU would wait."""
    check_shape(images, batched, spatial_dims)
    if not images.is_floating_point():
        remedy = "scale it first, for example with ScaleIntensityRanged(keys, a_min, a_max, 0.0, 1.0, clip=True)"
        raise ValueError(
            f"The image must be floating-point in [0, 1], got {images.dtype}: {remedy}."
        )
    if validate is None:
        validate = images.device.type == "cpu"
    if not validate:
        return
    low, high = (float(v) for v in torch.aminmax(images.detach()))
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        found = "NaN" if low != low else f"values from {low:g} to {high:g}"
        remedy = "scale it before (ScaleIntensity, or ScaleIntensityRanged) and normalize it after (NormalizeIntensity)"
        raise ValueError(
            f"The image must be in [0, 1], the units of this transform, got {found}: {remedy}."
        )


def check_range(
    name: str, values: Sequence[Number], largest: float = math.inf
) -> tuple[Number, Number]:
    """Two positive numbers in ascending order, the second at most ``largest``."""
    is_pair = isinstance(values, Sequence) and len(values) == 2
    if not is_pair or not 0 < values[0] <= values[1] <= largest:
        limit = "" if largest == math.inf else f" and at most {largest:g}"
        raise ValueError(
            f"{name} must be two numbers in ascending order, above 0{limit}, got {values!r}."
        )
    return values[0], values[1]


def check_prob(name: str, value: float) -> float:
    """A probability, as MONAI's own transforms would silently clip it."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}.")
    return float(value)


def check_positive(name: str, values: int | Sequence[int]) -> tuple[int, ...]:
    """A setting, one number or one for each axis, as a tuple if all are whole numbers of at least 1."""
    numbers = ensure_tuple(values)
    are_whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in numbers)
    if not numbers or not are_whole or min(numbers) < 1:
        raise ValueError(f"{name} must be whole and at least 1 in every axis, got {numbers}.")
    return tuple(int(number) for number in numbers)


def per_axis(name: str, values: tuple[int, ...], spatial_dims: int) -> tuple[int, ...]:
    """One number for each axis, of a setting that has one, or one for each."""
    if len(values) not in (1, spatial_dims):
        found = (
            f"{name} has {len(values)} numbers, but the image has {spatial_dims} spatial dimensions"
        )
        raise ValueError(f"{found}: give one number, or one for each of them.")
    return values if len(values) == spatial_dims else values * spatial_dims


def patches_per_axis(spatial_shape: Sequence[int], patch_size: tuple[int, ...]) -> list[int]:
    """How many whole patches an image has along each axis."""
    patch = per_axis("patch_size", patch_size, len(spatial_shape))
    if any(n % p or n < p for n, p in zip(spatial_shape, patch, strict=True)):
        size = f"An image of {tuple(spatial_shape)} pixels"
        raise ValueError(
            f"{size} cannot be divided into patches of {patch}: resize or pad it first."
        )
    return [n // p for n, p in zip(spatial_shape, patch, strict=True)]
