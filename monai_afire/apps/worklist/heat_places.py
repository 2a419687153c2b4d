# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names for the place where the heat is strongest: in the picture, and in the lungs that were found."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import distance_transform_edt

from monai_afire.networks.nets.lung_finder import SMALLEST_LUNGS

_RIM = 0.03  # of the side: as near to a lung counts as in it
_HEIGHTS = ("upper", "middle", "lower")
_WIDTHS = ("left", "center", "right")


def hottest_place(heat: ArrayLike, low: float) -> str:
    """Third of height and width of the picture where a heat map ``(H, W)`` is strongest; "" for none above ``low``."""
    values = np.asarray(heat)
    if not values.max() > low:
        return ""
    row, column = np.unravel_index(values.argmax(), values.shape)
    height = _HEIGHTS[3 * int(row) // values.shape[0]]
    width = _WIDTHS[3 * int(column) // values.shape[1]]
    return "center" if (height, width) == ("middle", "center") else f"{height} {width}"


def lung_zone(heat: ArrayLike, lungs: ArrayLike, low: float) -> str:
    """
    Name the lung and the third of its height where the heat is strongest.

    The left side of a frontal radiograph shows the patient's right lung.

    Args:
        heat: heat map ``(H, W)``.
        lungs: probability of lung ``(h, w)`` over the same picture, see :class:`monai_afire.networks.LungFinder`.
        low: largest heat that counts as none.

    Returns:
        Such as "right lung, upper zone"; "between the lungs" or "outside the lungs"; "" without heat or lungs.

    Example:
        >>> lungs = np.zeros((30, 30))
        >>> lungs[3:27, 2:12] = lungs[3:27, 18:28] = 1
        >>> heat = np.zeros((60, 60))
        >>> heat[50, 10] = 3
        >>> lung_zone(heat, lungs, low=1.0), lung_zone(heat.T, lungs, low=1.0), lung_zone(heat[:, ::-1], lungs, low=1.0)
        ('right lung, lower zone', 'left lung, upper zone', 'left lung, lower zone')
    """
    values, mask = np.asarray(heat), np.asarray(lungs) >= 0.5
    if not values.max() > low or mask.mean() < SMALLEST_LUNGS:
        return ""
    hottest = np.unravel_index(values.argmax(), values.shape)
    row, column = (
        int(at) * pixels // full
        for at, pixels, full in zip(hottest, mask.shape, values.shape, strict=True)
    )
    distance, nearest = distance_transform_edt(~mask, return_indices=True)
    if distance[row, column] <= _RIM * max(mask.shape):
        return _zone_of_lung(mask, *nearest[:, row, column])
    beside = mask[row]
    is_enclosed = beside[:column].any() and beside[column:].any()
    return "between the lungs" if is_enclosed else "outside the lungs"


def _zone_of_lung(mask: NDArray[np.bool_], row: int, column: int) -> str:
    """The lung that a pixel belongs to, and the third of its height."""
    columns = np.flatnonzero(mask.any(axis=0))
    middle = (columns[0] + columns[-1]) / 2
    border = int(np.ceil(middle))
    is_right = column < middle
    lung = mask[:, :border] if is_right else mask[:, border:]
    rows = np.flatnonzero(lung.any(axis=1))
    third = min(2, 3 * (row - rows[0]) // (rows[-1] - rows[0] + 1))
    return f"{'right' if is_right else 'left'} lung, {_HEIGHTS[third]} zone"
