# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pairs of an abnormal and a normal image that are alike in brightness: how well scores tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from monai_afire.metrics.binary_classification import NAN, checked_labels, checked_numbers


def matched_pairs(
    labels: ArrayLike,
    brightness: ArrayLike,
    groups: Sequence[object] | NDArray | None = None,
    caliper: float = 0.05,
) -> NDArray[np.intp]:
    """
    Pairs of one abnormal and one normal image that are alike in brightness and group, each image used at most once.

    A detector that reads the exposure or the view instead of the lesion is at chance on such pairs. As many pairs as
    possible are formed, and of all ways to do so the one with the least total difference of brightness.

    Args:
        labels: ``(M,)`` of 0 and 1.
        brightness: ``(M,)``, or any other number the pairs shall agree in.
        groups: ``(M,)``, for example the view ("PA", "AP"); pairs form within a group. None: all are one group.
        caliper: largest difference of brightness within a pair, in its units.

    Returns:
        ``(pairs, 2)`` indices (abnormal, normal), in the order of the abnormal images.

    Raises:
        ValueError: also for a negative caliper, an infinite brightness or another number of groups.

    Example:
        >>> matched_pairs([1, 0, 0, 1], [0.50, 0.40, 0.52, 0.90], ["PA", "PA", "PA", "AP"], caliper=0.1).tolist()
        [[0, 2]]
    """
    truth, values = checked_labels(labels, brightness, "brightness")
    if not caliper >= 0:
        raise ValueError(f"caliper must be >= 0, got {caliper}")
    if np.isinf(values).any():
        raise ValueError(
            f"brightness at index {np.flatnonzero(np.isinf(values)).tolist()} is infinite"
        )
    names: Sequence[object] | NDArray = [""] * truth.size if groups is None else groups
    codes, _ = pd.factorize(pd.Series(list(names), dtype=object))
    if len(codes) != truth.size:
        raise ValueError(f"{truth.size} labels, but {len(codes)} groups: give one group per image")
    pairs: list[tuple[int, int]] = []
    for group in (np.flatnonzero(codes == code) for code in set(codes)):
        pairs += _match(group[truth[group]], group[~truth[group]], values, caliper)
    return np.array(sorted(pairs), dtype=np.intp).reshape(-1, 2)


def matched_pair_auc(scores: ArrayLike, pairs: ArrayLike) -> float:
    """
    Share of matched pairs whose abnormal image scores above its normal one, a tie counting half.

    Args:
        scores: ``(M,)``.
        pairs: ``(pairs, 2)`` indices (abnormal, normal) of :func:`matched_pairs`.

    Returns:
        In [0, 1]; NaN without a pair.

    Raises:
        ValueError: when `pairs` has another shape or an index that no score has.

    Example:
        >>> matched_pair_auc([0.9, 0.1, 0.5, 0.5], [[0, 1], [2, 3]])
        0.75
    """
    values, indices = checked_numbers(scores, "scores"), np.asarray(pairs)
    if indices.size == 0:
        return NAN
    if (
        indices.ndim != 2
        or indices.shape[1] != 2
        or indices.min() < 0
        or indices.max() >= values.size
    ):
        raise ValueError(
            f"pairs must be (pairs, 2) indices of scores, got {indices.shape}: use matched_pairs()"
        )
    abnormal, normal = values[indices[:, 0]], values[indices[:, 1]]
    return float(np.mean((abnormal > normal) + 0.5 * (abnormal == normal)))


def _match(
    abnormal: NDArray, normal: NDArray, brightness: NDArray, caliper: float
) -> list[tuple[int, int]]:
    difference = np.abs(brightness[abnormal][:, None] - brightness[normal])
    allowed = difference <= caliper
    if not allowed.any():
        return []
    # one forbidden pair costs more than all allowed ones together: the number of pairs comes first
    forbidden = 2 * min(difference.shape) * difference[allowed].max() + 1
    rows, columns = linear_sum_assignment(np.where(allowed, difference, forbidden))
    kept = allowed[rows, columns]
    return [
        (int(i), int(j)) for i, j in zip(abnormal[rows[kept]], normal[columns[kept]], strict=True)
    ]
