# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Colors of DICOM files: which of them can be read, palettes, and numbers as fractions."""

from __future__ import annotations

import numpy as np
import pydicom
from pydicom.pixels import apply_color_lut

from monai_afire.transforms.radiograph_io.common import refuse
from monai_afire.utils.text import first_line

PALETTE = "PALETTE COLOR"
_GRAY = ("MONOCHROME1", "MONOCHROME2", PALETTE)
_YBR = ("YBR_FULL", "YBR_FULL_422")  # which pydicom turns into RGB
_OF_JPEG_2000 = ("YBR_ICT", "YBR_RCT")  # which the decoder of JPEG 2000 turns into RGB
_COLORS = ("RGB", *_YBR, *_OF_JPEG_2000)
_REMEDY = "export it as RGB or in gray"
_BYTE = 8


def check_colors(path: str, dataset: pydicom.Dataset) -> None:
    """Refuse colors that nothing here turns into red, green and blue, before any pixel is decoded."""
    photometric = str(dataset.PhotometricInterpretation)
    samples = int(dataset.get("SamplesPerPixel") or 1)
    expected = 1 if photometric in _GRAY else 3
    syntax = dataset.file_meta.get("TransferSyntaxUID") if "file_meta" in vars(dataset) else None
    is_jpeg_2000 = syntax is not None and "JPEG 2000" in pydicom.uid.UID(syntax).name
    reason = ""
    if photometric not in (*_GRAY, *_COLORS):
        reason = (
            f"states its colors as {photometric}, which is none of {', '.join((*_GRAY, *_COLORS))}"
        )
    elif samples != expected:
        reason = f"has {samples} samples per pixel where its photometric interpretation {photometric} needs {expected}"
    elif expected == 3 and dataset.get("PixelRepresentation") == 1:
        reason = f"is a color picture ({photometric}) of signed numbers, where black is not known"
    elif photometric in _OF_JPEG_2000 and not is_jpeg_2000:
        reason = f"states its colors as {photometric}, which JPEG 2000 alone has, and is not compressed so"
    elif photometric in _YBR and int(dataset.BitsAllocated) != _BYTE:
        reason = f"is a color picture ({photometric}) of {dataset.BitsAllocated} bits, not of 8"
    if reason:
        raise refuse(path, reason, _REMEDY)


def look_up_palette(path: str, dataset: pydicom.Dataset, stored: np.ndarray) -> np.ndarray:
    """Colors ``(H, W, 3)`` of indices ``(H, W)`` into the palette of a file."""
    try:
        count, first, bits = map(int, dataset.RedPaletteColorLookupTableDescriptor)
        count = count or 2**16
        # pydicom counts entries in the type of the colors: an index beyond 255 would wrap to 0
        if bits == _BYTE and count > 2**_BYTE:
            raise ValueError(f"{count} entries of 8 bits, more than 256")
        places = np.clip(stored.astype(np.int64), first, first + count - 1)
        return apply_color_lut(places, dataset)[..., :3]
    except Exception as error:  # a damaged table can raise anything
        raise refuse(path, f"has no usable palette ({first_line(error)})", _REMEDY) from error


def color_fractions(dataset: pydicom.Dataset, colors: np.ndarray) -> np.ndarray:
    """Colors unchanged if they have 8 bits, else as fractions of the largest number of the file's type, float32."""
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    if dataset.PhotometricInterpretation == PALETTE:
        bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
        if colors.max() >= 2**_BYTE:  # 8 bits in the upper half of 16, as older palettes have them
            bits = 16
    if bits <= _BYTE:
        return colors.astype(np.uint8)
    return (colors / (2.0**bits - 1.0)).clip(0.0, 1.0).astype(np.float32)
