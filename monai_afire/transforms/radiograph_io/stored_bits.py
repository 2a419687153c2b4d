# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The numbers of a gray DICOM picture within its decoded cells: their bits, overlays between them, padding around."""

from __future__ import annotations

import numpy as np
import pydicom

from monai_afire.transforms.radiograph_io.common import warn_about

_OVERLAY_GROUPS = range(0x6000, 0x6100, 2)
_BITS_ALLOCATED, _BIT_POSITION, _OVERLAY_DATA = 0x0100, 0x0102, 0x3000
_PADDING = (
    ("PixelPaddingValue", "PixelPaddingRangeLimit"),
    ("FloatPixelPaddingValue", "FloatPixelPaddingRangeLimit"),
    ("DoubleFloatPixelPaddingValue", "DoubleFloatPixelPaddingRangeLimit"),
)


def separate_numbers(
    path: str, dataset: pydicom.Dataset, cells: np.ndarray, bits: int, high_bit: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """
    The numbers in the cells of a picture, and where they are padding.

    Old files keep numbers in the upper bits, or an overlay above or below them. Where numbers need more bits than are
    stated, the statement is wrong, not the picture; Bits Stored of ``dataset`` becomes what they need.

    Args:
        path: for warnings.
        dataset: the header.
        cells: decoded whole numbers ``(H, W)``, with all bits that are allocated.
        bits: that the file states for the numbers.
        high_bit: position that the file states for the highest of them.

    Returns:
        Numbers ``(H, W)`` of the type of ``cells``, and a mask ``(H, W)``, None without padding.
    """
    unused = high_bit - (bits - 1)  # bits below the numbers
    overlays = [
        place for place in _overlay_places(dataset, cells.dtype) if not unused <= place <= high_bit
    ]
    for place in overlays:
        cells = cells & ~_bit(place, cells.dtype)
    padding = _in_padding(dataset, cells, bits)
    inside = cells[~padding]
    if unused > 0 and inside.any() and not (inside & (2**unused - 1)).any():
        sign = "i" if dataset.get("PixelRepresentation") == 1 else "u"
        cells = cells.view(f"u{cells.dtype.itemsize}") >> unused
        cells = cells.view(f"{sign}{cells.dtype.itemsize}")
        padding, inside = np.zeros(cells.shape, bool), cells
    numbers = _of_stated_bits(cells, inside, bits, bool(overlays))
    if len(inside) and (needed := _bits_needed(numbers[~padding])) > bits:
        warn_about(path, f"states {bits} bits and has numbers of {needed}, which are read")
        dataset.BitsStored = needed
    padding |= _in_padding(dataset, numbers, bits)
    return numbers, _partial(padding)


def float_padding(dataset: pydicom.Dataset, numbers: np.ndarray) -> np.ndarray | None:
    """Where floating-point numbers ``(H, W)`` are padding; None without padding."""
    return _partial(_in_padding(dataset, numbers, 0))


def _partial(padding: np.ndarray) -> np.ndarray | None:
    return padding if bool(padding.any()) and not bool(padding.all()) else None


def _overlay_places(dataset: pydicom.Dataset, dtype: np.dtype) -> list[int]:
    """
    Positions of the bits that are overlays (retired since 2004).

    An overlay of its own element has Overlay Data, and states the position 0 and one bit allocated, too.
    """
    found = []
    for group in _OVERLAY_GROUPS:
        if (group, _BIT_POSITION) not in dataset or (group, _OVERLAY_DATA) in dataset:
            continue
        place = dataset[group, _BIT_POSITION].value
        allocated = dataset.get((group, _BITS_ALLOCATED))
        is_within = isinstance(place, int) and 0 <= place < 8 * dtype.itemsize
        if is_within and (place > 0 or allocated is None or allocated.value != 1):
            found.append(place)
    return found


def _bit(place: int, dtype: np.dtype) -> np.ndarray:
    """A number of one bit."""
    return np.array(2**place, dtype=f"u{dtype.itemsize}").view(dtype)


def _of_stated_bits(
    cells: np.ndarray, inside: np.ndarray, bits: int, has_overlays: bool
) -> np.ndarray:
    """Numbers of cells, whose upper bits repeat the sign, are zero, or are overlays."""
    above = 8 * cells.dtype.itemsize - bits
    if above <= 0:
        return cells
    if cells.dtype.kind == "u":
        return cells & np.array(2**bits - 1, dtype=cells.dtype) if has_overlays else cells
    without_signs = len(inside) > 0 and bool((inside >= 0).all()) and int(inside.max()) < 2**bits
    return (cells << above) >> above if has_overlays or without_signs else cells


def _bits_needed(numbers: np.ndarray) -> int:
    """Bits that hold numbers, with the sign if they may have one."""
    if not numbers.size:
        return 0
    low, high = int(numbers.min()), int(numbers.max())
    if numbers.dtype.kind == "u":
        return high.bit_length()
    return 1 + max(high.bit_length(), (~low if low < 0 else 0).bit_length())


def _in_padding(dataset: pydicom.Dataset, numbers: np.ndarray, bits: int) -> np.ndarray:
    """Where numbers are those that the file states for padding."""
    mask = np.zeros(numbers.shape, bool)
    for keyword, limit_keyword in _PADDING:
        is_for_floats = not keyword.startswith("Pixel")
        value, limit = dataset.get(keyword), dataset.get(limit_keyword)
        if is_for_floats != (numbers.dtype.kind == "f") or not isinstance(value, (int, float)):
            continue
        if not isinstance(limit, (int, float)):
            limit = value
        for low, high in _ranges(value, limit, numbers.dtype, bits):
            mask |= (numbers >= low) & (numbers <= high)
    return mask


def _ranges(value: float, limit: float, dtype: np.dtype, bits: int) -> list[tuple[float, float]]:
    """Ranges of padding as numbers of a type; its VR may have had the other sign."""
    if dtype.kind == "f":
        return [(min(value, limit), max(value, limit))]
    own, other = _with_sign(int(value), dtype), _with_sign(int(limit), dtype)
    if own is None:
        return []
    if other is None or (own == value) != (other == limit):  # a range across 0 has not one sign
        ends = sorted((int(value), int(limit)))
        info = np.iinfo(dtype)
        return [(max(ends[0], info.min), min(ends[1], info.max))]
    found: list[tuple[float, float]] = [(min(own, other), max(own, other))]
    end = _end_of_stated(own, dtype, bits)
    return found if end is None or value != limit else [*found, (end, end)]


def _with_sign(value: int, dtype: np.dtype) -> int | None:
    """A number of 16 bits with the sign of a type, None where the type cannot hold it."""
    info = np.iinfo(dtype)
    half, whole = 2 ** (info.bits - 1), 2**info.bits
    for number in (value, value - 2**16, value + 2**16):
        if info.min <= number <= info.max:
            return number
        if dtype.kind == "u" and -half <= number < 0:
            return number + whole
        if dtype.kind == "i" and half <= number < whole:
            return number - whole
    return None


def _end_of_stated(value: int, dtype: np.dtype, bits: int) -> int | None:
    """The largest or smallest number of the stated bits, where the value says it in other bits, else None."""
    if dtype.kind == "u":
        return 2**bits - 1 if value == np.iinfo(dtype).max else None
    return -(2 ** (bits - 1)) if value == 2 ** (bits - 1) else None
