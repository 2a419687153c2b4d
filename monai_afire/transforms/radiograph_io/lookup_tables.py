# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Modality and VOI lookup tables of DICOM (PS3.3, C.11.1.1.1 and C.11.2.1.1), as writers have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pydicom

_BYTE, _WORD = 8, 2**16


@dataclass(frozen=True)
class LookupTable:
    """
    Entries of a lookup table.

    Attributes:
        entries: the numbers that it gives.
        first: the number that the first entry is for.
        bits: of the entries; less than stated where the statement is the size of an entry in memory.
        stated_bits: what the third item of the descriptor says.
    """

    entries: np.ndarray
    first: int
    bits: int
    stated_bits: int

    @property
    def inputs(self) -> tuple[float, float]:
        """First and last number that the table is for."""
        return float(self.first), float(self.first + len(self.entries) - 1)

    def apply(self, numbers: np.ndarray) -> np.ndarray:
        """Entries for numbers; the first or last one for numbers beyond."""
        places = np.rint(numbers).astype(np.int64) - self.first
        return self.entries[np.clip(places, 0, len(self.entries) - 1)]


def read_table(item: pydicom.Dataset, numbers: np.ndarray, little_endian: bool) -> LookupTable:
    """
    Read the table of a sequence's item.

    pydicom's own functions know entries of 8 and 16 bits alone, and wrap above 255.

    Args:
        item: with LUT Descriptor and LUT Data.
        numbers: what is to be looked up, which shows whether the descriptor's first number has a sign.
        little_endian: order of the bytes in the file.

    Raises:
        ValueError: When the table is empty, or its descriptor has other than three numbers.
    """
    count, first, stated = _descriptor(item.LUTDescriptor, little_endian)
    entries = _entries(item.LUTData, count, little_endian)
    if not len(entries):
        raise ValueError("a lookup table without entries")
    # Agfa states 16 bits for entries of 12, as dicom-rs #825 shows: such a picture would be nearly black.
    bits = min(stated, max(_BYTE, int(entries.max()).bit_length()))
    return LookupTable(entries, _signed_first(first, count, numbers), bits, stated)


def _descriptor(values: object, little_endian: bool) -> tuple[int, int, int]:
    """Number of entries, first number and bits; bytes where the file does not show whether they have a sign."""
    if isinstance(values, bytes):
        values = np.frombuffer(values, dtype="<u2" if little_endian else ">u2").tolist()
    count, first, bits = (int(number) for number in values)  # type: ignore[attr-defined]
    return count % _WORD or _WORD, first, bits


def _entries(data: bytes | int | list[int], count: int, little_endian: bool) -> np.ndarray:
    """Entries of 16 bits, or of 8 bits where the data have one byte for each, and one more if that makes them even."""
    if isinstance(data, bytes):
        words = np.frombuffer(data[: len(data) // 2 * 2], dtype="<u2" if little_endian else ">u2")
    else:
        words = np.atleast_1d(np.asarray(data, dtype=np.int64))
    if 2 * len(words) in (count, count + 1) and len(words) < count:
        return words.astype("<u2").view(np.uint8)[:count]
    return words[:count]


def _signed_first(first: int, count: int, numbers: np.ndarray) -> int:
    """
    The first number, with the sign that makes the table one for these numbers.

    Its VR follows from the sign of the stored numbers, though it is one of the transformed numbers, which a negative
    intercept makes negative. So -1024 may be written as 64512, or 40000 as -25536.
    """
    low, high = float(numbers.min()), float(numbers.max())
    for candidate in (first, first - _WORD if first >= 0 else first + _WORD):
        if candidate <= high and candidate + count - 1 >= low:
            return candidate
    return first
