# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reader of PNG, JPEG, TIFF and BMP files."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress

import numpy as np
from PIL import Image, ImageFile, ImageOps

from monai_afire.transforms.radiograph_io.common import (
    WRITER,
    RadiographPixels,
    SizeLimits,
    picture_pixels,
    refuse,
    refuse_own_result,
    warn_if_colored,
)
from monai_afire.transforms.radiograph_io.tiff import (
    TIFF_BITS,
    TIFF_PHOTOMETRIC,
    WHITE_IS_ZERO,
    check_decodable,
    is_deep,
    read_deep_tiff,
    with_sample_format,
)
from monai_afire.utils.text import first_line

_PALETTE_MODES = ("P", "PA")
_GRAY_MODES = ("L", "F", "I")
_MOST_COUNTED = 10  # pictures in a file that is refused; each is looked for among all before it


def read_picture(
    path: str, file_format: str, limits: SizeLimits, raw: bool = False, color: bool = False
) -> RadiographPixels:
    """Read a PNG, JPEG, TIFF or BMP file as one upright gray picture."""
    # A stream, not a name: Pillow would map the file into memory, where it ignores the orientation of a TIFF.
    with open(path, "rb") as stream:
        try:
            image = Image.open(
                stream, formats=("JPEG", "MPO") if file_format == "JPEG" else (file_format,)
            )
        except Image.DecompressionBombError as error:
            raise refuse(path, f"is too large ({first_line(error)})", "reduce it first") from error
        except Exception as error:
            found = read_deep_tiff(path, limits, color) if file_format == "TIFF" else None
            if found is None:
                reason = f"has a {file_format} signature but a damaged or unsupported header"
                raise refuse(path, reason, "save it again as a 16-bit PNG") from error
            return found
        limits.check(path, image.height, image.width)
        _require_single(path, image, file_format)
        refuse_own_result(path, image.info.get("comment") == WRITER.encode())
        if file_format == "TIFF" and is_deep(image):
            if (found := read_deep_tiff(path, limits, color)) is not None:
                return found
            check_decodable(path, image)
        _load(path, image, file_format)
        return _to_pixels(path, ImageOps.exif_transpose(image), image, file_format, raw, color)


def opened_picture(
    path: str, image: Image.Image, file_format: str, color: bool = False
) -> RadiographPixels:
    """A picture that Pillow has opened, as one upright picture; ``path`` names it in messages."""
    _load(path, image, file_format)
    return _to_pixels(path, ImageOps.exif_transpose(image), image, file_format, color=color)


def picture_opacity(path: str | os.PathLike) -> np.ndarray | None:
    """
    How opaque each pixel of a picture is, upright.

    Args:
        path: any file, which has been read as a picture.

    Returns:
        ``(H, W)`` uint8, 255 for opaque; None for a file without transparency.
    """
    try:
        with Image.open(path) as image:
            if not image.has_transparency_data:
                return None
            return np.asarray(ImageOps.exif_transpose(image).convert("RGBA").getchannel("A"))
    except (OSError, ValueError, SyntaxError):
        return None  # no picture that Pillow reads: it has no such channel


def _require_single(path: str, image: Image.Image, file_format: str) -> None:
    """Refuse several pages or frames; the extra pictures of a JPEG are previews by definition of that format."""
    if file_format == "JPEG" or not getattr(image, "is_animated", False):
        return
    count = 1
    with suppress(EOFError):
        while count < _MOST_COUNTED:
            image.seek(count)
            count += 1
    found = f"{count} or more" if count == _MOST_COUNTED else str(count)
    reason = f"holds {found} pictures where one is expected"
    raise refuse(path, reason, "save the wanted one as a file of its own")


def _load(path: str, image: Image.Image, file_format: str) -> None:
    """Decode the pixels."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        text = "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set: a file that is cut would be read as a half-gray picture"
        warnings.warn(f"{text}; set it to False.", stacklevel=2)
    try:
        image.load()
    except Exception as error:
        reason = (
            f"is cut or damaged: its {file_format} data cannot be decoded ({first_line(error)})"
        )
        raise refuse(path, reason, "copy or download it again") from error


def _to_pixels(
    path: str,
    image: Image.Image,
    source: Image.Image,
    file_format: str,
    raw: bool = False,
    color: bool = False,
) -> RadiographPixels:
    """The picture of an image. ``source`` is the image before it was turned; only it has the header."""
    tags = getattr(source, "tag_v2", {})
    values = with_sample_format(_to_values(path, image, raw, color), source)
    bits = _bits_of_mode(source.mode)
    if file_format == "TIFF":
        bits = int(np.max(tags.get(TIFF_BITS, bits)))
    elif source.mode == "I":  # the mode of 16-bit PNG files before Pillow 11.3
        bits = 16
    white_is_zero = tags.get(TIFF_PHOTOMETRIC) == WHITE_IS_ZERO
    photometric = "PALETTE" if source.mode in _PALETTE_MODES else source.mode
    pixels = picture_pixels(values, file_format, photometric, bits, white_is_zero)
    # Pillow turns WhiteIsZero round itself for up to 8 bits, and leaves it as stored beyond.
    pixels.inverted &= bits > 8
    return pixels


def _bits_of_mode(mode: str) -> int:
    """Bits per sample of one of Pillow's modes."""
    if mode.startswith("I;16"):
        return 16
    return {"1": 1, "I": 32, "F": 32}.get(mode, 8)


def _to_values(path: str, image: Image.Image, raw: bool, color: bool) -> np.ndarray:
    """Numbers ``(H, W)`` of a picture of any mode, ``(H, W, 3)`` of one in color where that is to be kept."""
    if image.mode == "1":
        image = image.convert("L")
    if image.mode in _GRAY_MODES or image.mode.startswith("I;16") or (raw and image.mode == "P"):
        return np.asarray(image)
    if image.mode in ("LA", "La"):
        return np.asarray(image.getchannel(0))
    if image.mode in (*_PALETTE_MODES, "RGBA", "RGBa"):
        # the colors under a transparent pixel are kept, not mixed with a background
        image = image.convert("RGBA")
    rgb = image.convert("RGB")
    if color:
        return np.asarray(rgb)
    # small, so that noise of single pixels, as JPEG leaves it, is no color
    small = np.asarray(rgb.resize((64, 64), Image.Resampling.BOX))
    warn_if_colored(path, small, 2**8)
    return np.asarray(rgb.convert("L"))
