# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Run-length codes of the SIIM-ACR pneumothorax challenge."""

from __future__ import annotations

import numpy as np

__all__ = ["decode_rle", "encode_rle"]

_EMPTY = "-1"


def decode_rle(code: str, shape: tuple[int, int] = (1024, 1024)) -> np.ndarray:
    r"""
    Mask of a *relative* run-length code, as the SIIM-ACR challenge writes them.

    The code is pairs :math:`o_1\, n_1\, o_2\, n_2 \dots` over the pixels taken column by column: after :math:`o_i`
    pixels outside, counted from the end of the run before, come :math:`n_i` pixels inside. "-1" is the empty mask.

    Args:
        code: the run-length code.
        shape: rows and columns of the mask.

    Returns:
        (rows, columns) array of ``uint8`` with 0 and 1.

    Raises:
        ValueError: When the code is not pairs of integers, an offset is negative, a run is empty, or the runs do not
            fit into the shape.

    Example:
        >>> decode_rle("1 2 2 1", shape=(3, 2))
        array([[0, 0],
               [1, 0],
               [1, 1]], dtype=uint8)
    """
    if code.strip() == _EMPTY:
        return np.zeros(shape, np.uint8)
    try:
        numbers = np.array(code.split(), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"the run-length code {_shortened(code)} holds something else than integers") from error
    if numbers.size == 0 or numbers.size % 2:
        raise ValueError(f"the run-length code {_shortened(code)} has {numbers.size} numbers; pairs are expected")
    size = shape[0] * shape[1]
    if numbers[0::2].min() < 0 or numbers[1::2].min() < 1 or numbers.max() > size:
        raise ValueError(f"the run-length code {_shortened(code)} has offsets or lengths outside 0 to {size}")
    ends = np.cumsum(numbers)
    if ends[-1] > size:
        raise ValueError(f"the run-length code {_shortened(code)} ends at pixel {ends[-1]} of {size}")
    inside = np.zeros(len(numbers), np.uint8)
    inside[1::2] = 1
    pixels = np.zeros(size, np.uint8)
    pixels[: ends[-1]] = np.repeat(inside, numbers)
    return np.ascontiguousarray(pixels.reshape(shape[1], shape[0]).T)


def encode_rle(mask: np.ndarray) -> str:
    """
    Relative run-length code of a mask, the inverse of :func:`decode_rle`.

    Args:
        mask: (rows, columns) array; everything but 0 is inside.

    Returns:
        The code with the longest possible runs; "-1" for an empty mask.

    Raises:
        ValueError: When the array has not two axes.

    Example:
        >>> encode_rle(np.array([[0, 0], [1, 0], [1, 1]]))
        '1 2 2 1'
    """
    if mask.ndim != 2:
        raise ValueError(f"a mask of rows and columns is expected, got an array of shape {mask.shape}")
    pixels = (mask != 0).T.ravel()
    changes = np.flatnonzero(np.diff(pixels, prepend=False, append=False))
    if changes.size == 0:
        return _EMPTY
    return " ".join(map(str, np.diff(changes, prepend=0)))


def _shortened(code: str) -> str:
    return repr(code if len(code) <= 40 else code[:37] + "...")
