# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Names for places in a frontal chest radiograph, from the found lungs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import distance_transform_edt

from monai_afire.networks.nets.lung_finder import SMALLEST_LUNGS

_RIM = 0.03  # of the side: as near to a lung counts as in it
_ZONES = ("upper", "middle", "lower")


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
        int(at) * side // full
        for at, side, full in zip(hottest, mask.shape, values.shape, strict=True)
    )
    distance, nearest = distance_transform_edt(~mask, return_indices=True)
    columns = np.flatnonzero(mask.any(axis=0))
    middle = (columns[0] + columns[-1]) / 2
    near_row, near_column = nearest[:, row, column]
    if distance[row, column] > _RIM * max(mask.shape):
        beside = mask[row]
        enclosed = beside[:column].any() and beside[column:].any()
        return "between the lungs" if enclosed else "outside the lungs"
    is_right = near_column < middle
    side = mask[:, : int(np.ceil(middle))] if is_right else mask[:, int(np.ceil(middle)) :]
    rows = np.flatnonzero(side.any(axis=1))
    third = min(2, 3 * (near_row - rows[0]) // (rows[-1] - rows[0] + 1))
    return f"{'right' if is_right else 'left'} lung, {_ZONES[third]} zone"
