# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of binary classification (normal, abnormal) on NumPy arrays, exact. For pixels see ``localization``.

Everywhere a label is 1 (or True) for abnormal and 0 for normal, a larger score is more abnormal, an image is called
abnormal when score >= threshold, and a metric that the data does not define (one class only) is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

NAN = float("nan")


def roc_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """
    Area under the ROC curve: the probability that an abnormal image scores above a normal one, a tie counting half.

    The value is that of scikit-learn's ``roc_auc_score`` and MONAI's ``compute_roc_auc``. For the thousand samples of
    an interval they are too slow: on 200 images they take 17 and more, and four times as long.

    Args:
        labels: ``(M,)`` of 0 and 1.
        scores: ``(M,)``.

    Returns:
        In [0, 1]; NaN for one class only.

    Example:
        >>> roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.4, 0.8])
        0.875
    """
    truth, values = checked_labels(labels, scores)
    abnormal = int(truth.sum())
    normal = truth.size - abnormal
    if abnormal == 0 or normal == 0:
        return NAN
    rank_sum = rankdata(values)[truth].sum()
    return float((rank_sum - abnormal * (abnormal + 1) / 2) / (abnormal * normal))


def best_f1_threshold(labels: ArrayLike, scores: ArrayLike) -> float:
    """
    The score that, as a threshold, gives the best F1; of several the largest, which raises the fewest alarms.

    Args:
        labels: ``(M,)`` of 0 and 1, of the validation set.
        scores: ``(M,)``.

    Returns:
        One of the scores; NaN for one class only.
    """
    truth, values = checked_labels(labels, scores)
    if truth.all() or not truth.any():
        return NAN
    order, last = descending_order(values)
    hits, alarms = np.cumsum(truth[order])[last], last + 1
    return float(values[order][last][np.argmax(2 * hits / (alarms + truth.sum()))])


def mean_of_defined(values: Sequence[float]) -> float:
    """Mean of the numbers that are not NaN; NaN without one."""
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else NAN


def descending_order(values: NDArray) -> tuple[NDArray, NDArray]:
    """Order from the largest value down, and the last place in it of each distinct value."""
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    return order, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))


def checked_labels(
    labels: ArrayLike, scores: ArrayLike, name: str = "scores"
) -> tuple[NDArray, NDArray]:
    """Labels as bool and scores as float64, one of each per image."""
    truth, values = np.asarray(labels), checked_numbers(scores, name)
    if truth.shape != values.shape:
        raise ValueError(
            f"labels have shape {truth.shape} and {name} {values.shape}: give one of each per image"
        )
    wrong = np.flatnonzero(~np.isin(truth, (0, 1)))
    if wrong.size:
        raise ValueError(
            f"labels must be 0 (normal) or 1 (abnormal), got {truth[wrong[0]]} at index {wrong[0]}"
        )
    return truth.astype(bool), values


def checked_numbers(numbers: ArrayLike, name: str) -> NDArray:
    """A vector of numbers without NaN, in float64; the error calls them by their name."""
    values = np.asarray(numbers, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name} have shape {values.shape} instead of (M,) with M > 0")
    bad = np.flatnonzero(np.isnan(values))
    if bad.size:
        raise ValueError(
            f"{name} of {bad.size} images are NaN (index {bad[0]} is the first): an exploded or wrongly loaded network"
        )
    return values
