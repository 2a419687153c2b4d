# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Colours of DICOM pictures: ultrasound, fundus, skin."""

from __future__ import annotations

import numpy as np
import pydicom
from pydicom.pixels import apply_color_lut

from monai_afire.transforms.radiograph_io.common import first_line, refuse

__all__ = ["PALETTE", "check_colours", "colour_fractions", "look_up_palette"]

PALETTE = "PALETTE COLOR"
_GRAY = ("MONOCHROME1", "MONOCHROME2", PALETTE)
_YBR = ("YBR_FULL", "YBR_FULL_422")  # which pydicom turns into RGB
_OF_JPEG_2000 = ("YBR_ICT", "YBR_RCT")  # which the decoder of JPEG 2000 turns into RGB
_COLOURS = ("RGB", *_YBR, *_OF_JPEG_2000)
_REMEDY = "export it as RGB or in gray"
_BYTE = 8


def check_colours(path: str, dataset: pydicom.Dataset) -> None:
    """Refuse colours that nobody here turns into red, green and blue, before any pixel is decoded.

    Raises:
        RadiographError: For another photometric interpretation, a number of samples or a compression that does not
            fit it, or colours with a sign.
    """
    photometric, samples = str(dataset.PhotometricInterpretation), int(dataset.get("SamplesPerPixel") or 1)
    if photometric not in (*_GRAY, *_COLOURS):
        known = ", ".join((*_GRAY, *_COLOURS))
        raise refuse(path, f"states its colours as {photometric}, which is none of {known}", _REMEDY)
    expected = 1 if photometric in _GRAY else 3
    if samples != expected:
        reason = f"has {samples} samples per pixel where its photometric interpretation {photometric} needs {expected}"
        raise refuse(path, reason, _REMEDY)
    if expected == 3 and dataset.get("PixelRepresentation") == 1:
        raise refuse(path, f"is a colour picture ({photometric}) of signed numbers, where black is not known", _REMEDY)
    syntax = dataset.file_meta.get("TransferSyntaxUID") if "file_meta" in vars(dataset) else None
    if photometric in _OF_JPEG_2000 and (syntax is None or "JPEG 2000" not in pydicom.uid.UID(syntax).name):
        reason = f"states its colours as {photometric}, which JPEG 2000 alone has, and is not compressed so"
        raise refuse(path, reason, _REMEDY)
    if photometric in _YBR and int(dataset.BitsAllocated) != _BYTE:
        raise refuse(path, f"is a colour picture ({photometric}) of {dataset.BitsAllocated} bits, not of 8", _REMEDY)


def look_up_palette(path: str, dataset: pydicom.Dataset, stored: np.ndarray) -> np.ndarray:
    """Colours ``(H, W, 3)`` of indices ``(H, W)`` into the palette of a file.

    Raises:
        RadiographError: When the palette is missing or damaged, or too long for pydicom.
    """
    try:
        count, first, bits = (int(number) for number in dataset.RedPaletteColorLookupTableDescriptor)
        count = count or 2**16
        # pydicom counts entries in the type of the colours: an index beyond 255 would come round to 0
        if bits == _BYTE and count > 2**_BYTE:
            raise ValueError(f"{count} entries of 8 bits, more than 256")
        return apply_color_lut(np.clip(stored.astype(np.int64), first, first + count - 1), dataset)[..., :3]
    except Exception as error:  # a damaged table can raise anything
        raise refuse(path, f"has no usable palette ({first_line(error)})", _REMEDY) from error


def colour_fractions(dataset: pydicom.Dataset, colours: np.ndarray) -> np.ndarray:
    """Colours as they are if they have 8 bits, else as fractions of the most that the file can state, float32."""
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    if dataset.PhotometricInterpretation == PALETTE:
        bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
        if colours.max() >= 2**_BYTE:  # 8 bits in the upper half of 16, as older palettes have them
            bits = 16
    if bits <= _BYTE:
        return colours.astype(np.uint8)
    return (colours / (2.0**bits - 1.0)).clip(0.0, 1.0).astype(np.float32)
