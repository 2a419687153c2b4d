# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whole images at the size of a network's input."""

from __future__ import annotations

from collections.abc import Sequence

from monai.config import KeysCollection
from monai.transforms import Resized
from monai.utils import ensure_tuple_rep

__all__ = ["fit_images", "input_shape"]


def fit_images(
    keys: KeysCollection,
    size: int | Sequence[int],
    mode: str | Sequence[str] = "area",
    allow_missing_keys: bool = False,
) -> Resized:
    """
    MONAI's ``Resized`` for pictures, whose size may be one number for both sides.

    Args:
        keys: keys of images and masks ``(C, H, W)``.
        size: rows and columns in pixels, or one number for both.
        mode: "area" for images and "nearest-exact" for masks, one for all keys or one for each. ("nearest" shifts masks
            by half a pixel.)
        allow_missing_keys: do not raise an error if a key is missing.

    Example:
        >>> import torch
        >>> fit_images("image", 6)({"image": torch.rand(1, 8, 12)})["image"].shape
        torch.Size([1, 6, 6])
    """
    shape = ensure_tuple_rep(size, 2)
    return Resized(keys, shape, mode=mode, anti_aliasing=False, allow_missing_keys=allow_missing_keys)


def input_shape(channels: int, size: int | Sequence[int]) -> list[int]:
    """
    Shape of one image as a network takes it.

    Args:
        channels: of the image.
        size: rows and columns in pixels, or one number for both.

    Example:
        >>> input_shape(1, 96)
        [1, 96, 96]
    """
    return [channels, *ensure_tuple_rep(size, 2)]
