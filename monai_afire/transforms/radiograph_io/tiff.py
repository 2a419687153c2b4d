# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""TIFF files with more than 8 bits, signs or fractions, which Pillow reads in part and partly wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from monai_afire.transforms.radiograph_io.common import (
    RadiographError,
    RadiographPixels,
    SizeLimits,
    picture_pixels,
    refuse,
    require_real,
    rgb_to_gray,
    warn_if_colored,
)

TIFF_BITS, TIFF_PHOTOMETRIC, WHITE_IS_ZERO = 258, 262, 0
_ORIENTATION, _PLANAR, _SAMPLE_FORMAT = 274, 284, 339
_UNSIGNED, _SIGNED, _SEPARATE = 1, 2, 2
_BLACK_IS_ZERO, _RGB = 1, 2
_REMEDY = "pip install imagecodecs, or save it again as a 16-bit PNG"
# Orientation (TIFF 6.0, page 36) -> axes to mirror of the stored picture, then whether rows and columns change places
_TURNS: dict[int, tuple[tuple[int, ...], bool]] = {
    1: ((), False),
    2: ((1,), False),
    3: ((0, 1), False),
    4: ((0,), False),
    5: ((), True),
    6: ((0,), True),
    7: ((0, 1), True),
    8: ((1,), True),
}


def is_deep(image: Image.Image) -> bool:
    """Whether a TIFF file that Pillow has opened holds other than unsigned numbers of at most 8 bits."""
    tags: Any = getattr(image, "tag_v2", {})
    return (
        int(np.max(tags.get(TIFF_BITS, 1))) > 8
        or int(np.max(tags.get(_SAMPLE_FORMAT, _UNSIGNED))) != _UNSIGNED
    )


def read_deep_tiff(path: str, limits: SizeLimits, color: bool) -> RadiographPixels | None:
    """
    Read a TIFF file by tifffile, which comes with scikit-image.

    Args:
        path: the file.
        limits: of its size.
        color: keep colors, ``(H, W, 3)`` in [0, 1].

    Returns:
        The picture, upright; None where tifffile lacks the codec, or cannot read the file at all.

    Raises:
        RadiographError: when the file holds several pictures, or other than gray or red, green and blue.
    """
    import tifffile

    try:
        with open(path, "rb") as stream, tifffile.TiffFile(stream) as tiff:
            page: Any = tiff.pages[0]
            _check_page(path, page, _has_second_page(tiff), limits)
            values = page.asarray()
    except RadiographError:
        raise
    except Exception:
        # a damaged file can raise anything; Pillow has its try, and says what is wrong
        return None
    if page.planarconfig == _SEPARATE and values.ndim == 3:
        values = np.moveaxis(values, 0, -1)
    values = _upright(values, page)
    white_is_zero = int(page.photometric) == WHITE_IS_ZERO
    mode = "RGB" if int(page.photometric) == _RGB else str(values.dtype.newbyteorder("="))
    if values.ndim == 3 and values.shape[-1] < 3:  # gray and its transparency
        values = values[..., 0]
    if values.ndim == 3:
        values = _of_colors(path, values[..., :3], color)
    bits = int(np.max(page.bitspersample))
    return picture_pixels(values, "TIFF", mode, bits, white_is_zero)


def _check_page(path: str, page: Any, several: bool, limits: SizeLimits) -> None:
    """Refuse what is not one picture of real numbers before it is decoded."""
    samples, photometric = int(page.samplesperpixel), int(page.photometric)
    is_gray = photometric in (WHITE_IS_ZERO, _BLACK_IS_ZERO) and samples <= 2
    is_rgb = photometric == _RGB and samples in (3, 4) and page.dtype == np.uint16
    if several or page.imagedepth != 1 or not (is_gray or is_rgb):
        pages = "several pages" if several else "one page"
        raise refuse(
            path, f"holds pictures of the shape {page.shape} on {pages}", "save one gray page"
        )
    limits.check(path, page.imagelength, page.imagewidth)
    require_real(path, page.dtype)


def _has_second_page(tiff: Any) -> bool:
    """Look for the second page alone: to count tens of thousands takes long."""
    try:
        return tiff.pages[1] is not None
    except IndexError:
        return False


def _upright(values: np.ndarray, page: Any) -> np.ndarray:
    """Turn a stored picture as its orientation says; an unknown one says nothing, as for other readers."""
    tag = page.tags.get(_ORIENTATION)
    axes, change = _TURNS.get(int(tag.value) if tag is not None else 1, ((), False))
    values = np.flip(values, axes)
    return np.ascontiguousarray(values.swapaxes(0, 1) if change else values)


def _of_colors(path: str, colors: np.ndarray, keep: bool) -> np.ndarray:
    """Colors of 16 bits as fractions, or as their luma."""
    if keep:
        return (colors / (2.0**16 - 1)).astype(np.float32)
    warn_if_colored(path, colors, 2**16)
    return rgb_to_gray(colors)


def check_decodable(path: str, image: Image.Image) -> None:
    """Refuse what tifffile has not decoded and Pillow decodes wrong: separate planes, and libtiff's byte order."""
    tags: Any = getattr(image, "tag_v2", {})
    bits = int(np.max(tags.get(TIFF_BITS, 1)))
    separate = tags.get(_PLANAR) == _SEPARATE
    swapped = image.mode in ("I", "F") and getattr(tags, "prefix", b"II") == b"MM"
    if bits > 8 and (separate or swapped):
        kind = "in separate planes" if separate else "of the order of bytes MM"
        reason = f"holds compressed numbers of {bits} bits {kind}, which no installed library reads rightly"
        raise refuse(path, reason, _REMEDY)


def with_sample_format(values: np.ndarray, image: Image.Image) -> np.ndarray:
    """Numbers that Pillow has read with or without signs, as the file means them."""
    tags: Any = getattr(image, "tag_v2", {})
    sample_format = int(np.max(tags.get(_SAMPLE_FORMAT, _UNSIGNED)))
    bits = int(np.max(tags.get(TIFF_BITS, 1)))
    if values.dtype == np.int32 and sample_format == _UNSIGNED and bits == 32:
        return values.view(np.uint32)
    if values.dtype == np.uint8 and sample_format == _SIGNED and image.mode == "L":
        return values.view(np.int8)
    return values
