# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Common parts of the readers of all formats: the error, limits of size, the decoded but unscaled picture."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.data.meta_obj import get_track_meta
from monai.utils import ImageMetaKey, MetaKeys, SpaceKeys

# how this package signs the heat maps that it writes as pictures or DICOM files
WRITER = "monai_afire"


class RadiographError(ValueError):
    """A file cannot be read as one radiograph; the message is one line: the file, the reason and the remedy.

    It takes a single argument so that it passes unchanged from the worker processes of a ``DataLoader``.
    """


class RadiographWarning(UserWarning):
    """A file was read, but something about it deserves a look; the message names the file."""


@dataclass(frozen=True)
class SizeLimits:
    """Sizes that are accepted. They are checked on the header, before memory is allocated for the pixels.

    Args:
        min_size: smallest height and width in pixels.
        max_pixels: largest height times width.
        max_aspect: largest ratio of the longer to the shorter side.
    """

    min_size: int = 32
    max_pixels: int = 2**26
    max_aspect: float = 8.0

    def check(self, path: str, height: int, width: int) -> None:
        """Refuse a picture of the wrong size.

        Raises:
            RadiographError: When a side or the ratio of the sides is outside the limits.
        """
        size = f"is {width} x {height} pixels (width x height)"
        if min(height, width) < self.min_size:
            limit = f"smaller than min_size={self.min_size}"
            raise refuse(path, f"{size}, {limit}", "export it again in more pixels")
        if height * width > self.max_pixels:
            raise refuse(path, f"{size}, more than max_pixels={self.max_pixels}", "shrink it")
        if max(height, width) > self.max_aspect * min(height, width):
            limit = f"sides in a ratio above max_aspect={self.max_aspect:g}"
            raise refuse(path, f"{size}, {limit}", "crop it")


@dataclass
class RadiographPixels:
    """A decoded picture, upright, with one channel, before its intensities are scaled.

    Attributes:
        values: the numbers of the file, ``(H, W)``; already in [0, 1] when ``scaled_by`` is set.
        file_format: "DICOM", "PNG", "JPEG", "TIFF", "BMP", "NIfTI", "MetaImage" or "NRRD".
        photometric: how the file states its colors, such as "MONOCHROME1", "RGB" or "PALETTE".
        bits: bits per sample that the file declares.
        spacing: distance of rows and of columns in mm, None where the file does not say.
        affine: RAS affine ``(4, 4)`` of the axes (row, column, normal).
        inverted: True when low numbers are to be shown bright.
        declared_range: lowest and highest number that the file could store.
        floor: number that means "no signal" (black, or white if ``inverted``), None where it is not known.
        padding: True where a pixel is padding outside the picture, ``(H, W)`` bool.
        slope: factor and summand that turn ``values`` into the units of the file.
        scaled_by: "window" or "voi_lut" when the file's own rule was applied.
        intensity_range: numbers of the file shown as 0 and 1, when ``scaled_by`` is set.
    """

    values: np.ndarray
    file_format: str
    photometric: str
    bits: int
    affine: np.ndarray
    spacing: tuple[float, float] | None = None
    inverted: bool = False
    declared_range: tuple[float, float] | None = None
    floor: float | None = None
    padding: np.ndarray | None = None
    slope: tuple[float, float] = (1.0, 0.0)
    scaled_by: str = ""
    intensity_range: tuple[float, float] = (0.0, 1.0)


def refuse(path: str | PathLike, reason: str, remedy: str = "") -> RadiographError:
    """Build the one-line error for a file: name, reason, remedy."""
    return RadiographError(f"{path}: {reason}; {remedy}." if remedy else f"{path}: {reason}.")


def refuse_own_result(path: str | PathLike, is_own: bool) -> None:
    """Refuse a heat map of this package, which a viewer may have put back beside its radiograph."""
    if is_own:
        raise refuse(path, f"is a heat map that {WRITER} wrote, not a radiograph", "leave it out")


def require_real(path: str | PathLike, dtype: np.dtype) -> None:
    """Refuse numbers that are not one gray level each, such as complex ones, whose imaginary part would be lost."""
    if dtype.kind not in "iuf":
        reason = f"holds numbers of type {dtype}, where real numbers are expected"
        remedy = "save the magnitude, or the part that is wanted, as a picture of its own"
        raise refuse(path, reason, remedy)


def warn_about(path: str | PathLike, message: str) -> None:
    """Warn about one file."""
    warnings.warn(f"{path}: {message}.", RadiographWarning, stacklevel=4)


def warn_if_colored(path: str | PathLike, colors: np.ndarray, gray_levels: int) -> None:
    """Warn about a picture ``(H, W, 3)`` of so many gray levels that is not gray by more than compression makes it."""
    spread = colors.max(axis=-1).astype(np.int32) - colors.min(axis=-1)
    if float(spread.mean()) > gray_levels / 32:
        found = "is a color picture, perhaps no radiograph; reduced to gray"
        warn_about(path, f"{found} (channels 3 keeps the colors)")


def planar_affine(spacing: tuple[float, float] | None = None) -> np.ndarray:
    """RAS affine of a picture without position: rows run towards -y and columns towards -x."""
    row, column = spacing or (1.0, 1.0)
    affine = np.zeros((4, 4))
    affine[1, 0], affine[0, 1], affine[2, 2], affine[3, 3] = -row, -column, 1.0, 1.0
    return affine


def picture_pixels(
    values: np.ndarray, file_format: str, mode: str, bits: int, white_is_zero: bool
) -> RadiographPixels:
    """A picture without position, of numbers that the file declares to have so many bits."""
    return RadiographPixels(
        values=values.astype(values.dtype.newbyteorder("="), copy=False),
        file_format=file_format,
        photometric="WHITE_IS_ZERO" if white_is_zero else mode,
        bits=bits,
        affine=planar_affine(),
        inverted=white_is_zero,
        # whole numbers: 2**64 - 1 is no floating-point number
        declared_range=(0, 2**bits - 1) if values.dtype.kind == "u" else None,
    )


def loaded_image(
    values: torch.Tensor, path: str, affine: np.ndarray, original_affine: np.ndarray, **facts: Any
) -> torch.Tensor:
    """A loaded image ``(C, *S)`` with the metadata that MONAI's transforms use, plain where metadata is off."""
    if not get_track_meta():
        return values
    meta = {
        ImageMetaKey.FILENAME_OR_OBJ: path,
        MetaKeys.SPATIAL_SHAPE.value: np.asarray(values.shape[1:]),
        MetaKeys.ORIGINAL_CHANNEL_DIM.value: 0,
        MetaKeys.AFFINE.value: torch.as_tensor(affine, dtype=torch.float64),
        MetaKeys.ORIGINAL_AFFINE.value: original_affine.astype(np.float64),
        MetaKeys.SPACE.value: SpaceKeys.RAS.value,
    }
    return MetaTensor(values, meta={**meta, **facts})


def rgb_to_gray(rgb: np.ndarray) -> np.ndarray:
    """Luma of Rec. 601 of unsigned integers ``(H, W, 3)`` -> ``(H, W)``; exact where the three channels are equal."""
    weighted = rgb.astype(np.uint32) @ np.array([299, 587, 114], dtype=np.uint32)
    return ((weighted + 500) // 1000).astype(rgb.dtype)
