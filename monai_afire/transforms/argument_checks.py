# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of what would give wrong images in silence: intensities and reversed ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", int, float)

ROUNDING = 1e-4  # how far images may leave [0, 1]: resampling and float16 do


def check_image_range(images: Tensor, batched: bool = False, validate: bool | None = None) -> None:
    """
    Refuse images that are not floating-point in [0, 1], or lack the channel axis.

    Args:
        images: ``(C, *S)``, or ``(B, C, *S)``, with 2 or 3 spatial dimensions.
        batched: whether there is a batch axis.
        validate: whether to look at the values; None: on a CPU only, since elsewhere it waits for the device.
    """
    if images.ndim - batched not in (3, 4):
        shape = (
            f"got shape {tuple(images.shape)}: add a missing channel axis with EnsureChannelFirst"
        )
        raise ValueError(f"The image must be {'(B, C, *S)' if batched else '(C, *S)'}, {shape}.")
    if not images.is_floating_point():
        remedy = "scale it first, for example by ScaleIntensityRanged(keys, a_min, a_max, 0.0, 1.0, clip=True)"
        raise ValueError(
            f"The image must be floating-point in [0, 1], got {images.dtype}: {remedy}."
        )
    if validate or (validate is None and images.device.type == "cpu"):
        low, high = (float(value) for value in torch.aminmax(images.detach()))
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # not for NaN, either
            remedy = "scale it before (ScaleIntensity) and normalize it after (NormalizeIntensity)"
            raise ValueError(f"The image must be in [0, 1], got {low:g} to {high:g}: {remedy}.")


def check_range(
    name: str, values: Sequence[Number], largest: float = float("inf")
) -> tuple[Number, Number]:
    """Two positive numbers in ascending order, the second at most ``largest``."""
    low, high = values
    if not 0 < low <= high <= largest:
        limit = "" if largest == float("inf") else f" and at most {largest:g}"
        raise ValueError(
            f"{name} must be two numbers in ascending order, above 0{limit}, got {values}."
        )
    return low, high
