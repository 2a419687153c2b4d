# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pairs of an abnormal and a normal image that are alike in brightness: how well scores tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from monai_afire.metrics.binary_classification import checked_labels


def matched_pairs(
    labels: ArrayLike,
    brightness: ArrayLike,
    groups: Sequence[object] | NDArray,
    caliper: float,
) -> NDArray[np.intp]:
    """
    Pairs of one abnormal and one normal image that are alike in brightness and group, each image used at most once.

    A detector that reads the exposure or the view instead of the lesion is at chance on such pairs. As many pairs as
    possible are formed, and of all ways to do so the one with the least total difference of brightness.

    Args:
        labels: ``(M,)`` of 0 and 1.
        brightness: ``(M,)``, finite, or any other number the pairs shall agree in.
        groups: ``(M,)``, for example the view ("PA", "AP"); pairs form within a group.
        caliper: largest difference of brightness within a pair, in its units.

    Returns:
        ``(pairs, 2)`` indices (abnormal, normal), in the order of the abnormal images.
    """
    truth, values = checked_labels(labels, brightness, "brightness")
    names = pd.Series(list(groups), dtype=object)
    pairs: list[tuple[int, int]] = []
    for rows in names.groupby(names, sort=False, dropna=False).indices.values():
        pairs += _match(rows[truth[rows]], rows[~truth[rows]], values, caliper)
    return np.array(sorted(pairs), dtype=np.intp).reshape(-1, 2)


def _match(
    abnormal: NDArray, normal: NDArray, brightness: NDArray, caliper: float
) -> list[tuple[int, int]]:
    """Pairs within one group."""
    difference = np.abs(brightness[abnormal][:, None] - brightness[normal])
    allowed = difference <= caliper
    if not allowed.any():
        return []
    # one forbidden pair costs more than all allowed ones together: the number of pairs comes first
    forbidden = 2 * min(difference.shape) * difference[allowed].max() + 1
    rows, columns = linear_sum_assignment(np.where(allowed, difference, forbidden))
    kept = allowed[rows, columns]
    return [*zip(abnormal[rows[kept]].tolist(), normal[columns[kept]].tolist(), strict=True)]
