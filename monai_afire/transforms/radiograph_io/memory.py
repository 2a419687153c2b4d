# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reader of pictures that another program has already opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

from monai_afire.transforms.radiograph_io.common import (
    RadiographError,
    RadiographPixels,
    SizeLimits,
    picture_pixels,
    refuse,
    require_real,
)
from monai_afire.transforms.radiograph_io.pictures import opened_picture

NAME = "the given picture"
_SHAPES = "give (H, W), (1, H, W), or the colors (3, H, W) or (H, W, 3) in 8 bits"


def read_memory(picture: Any, limits: SizeLimits, color: bool = False) -> RadiographPixels:
    """
    Take a picture in memory for one upright picture.

    Args:
        picture: of Pillow, an array or a tensor.
        limits: sizes that are accepted.
        color: whether colors are kept.

    Returns:
        Its numbers, not scaled.

    Raises:
        RadiographError: when it is no picture.
    """
    if not isinstance(picture, Image.Image):
        picture = _gray_or_picture(picture)
    if isinstance(picture, Image.Image):
        limits.check(NAME, picture.height, picture.width)
        return opened_picture(NAME, picture, picture.format or "picture", color)
    limits.check(NAME, *picture.shape)
    require_real(NAME, picture.dtype)
    return picture_pixels(picture, "array", "", 8 * picture.dtype.itemsize, white_is_zero=False)


def _gray_or_picture(picture: Any) -> np.ndarray | Image.Image:
    """Gray numbers ``(H, W)``, or the picture of colors."""
    if isinstance(picture, torch.Tensor):
        picture = picture.detach().cpu().numpy()
    if not isinstance(picture, np.ndarray):
        kind = type(picture).__name__
        raise RadiographError(
            f"a path, a picture of Pillow or an array is expected, got {kind}; give one of these."
        )
    if picture.ndim == 3 and picture.shape[0] == 1:
        picture = picture[0]
    if picture.ndim == 2:
        return picture
    if picture.ndim == 3 and picture.shape[0] == 3:
        picture = np.moveaxis(picture, 0, -1)
    if picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8:
        return Image.fromarray(np.ascontiguousarray(picture))
    raise refuse(NAME, f"has the shape {picture.shape} of {picture.dtype}", _SHAPES)
