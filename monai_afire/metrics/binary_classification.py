# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of binary classification (normal, abnormal) on NumPy arrays, exact. For pixels see ``localization``.

Everywhere a label is 1 (or True) for abnormal and 0 for normal, a larger score is more abnormal, an image is called
abnormal when score >= threshold, and a metric that the data does not define (one class only) is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from monai_afire.metrics.patient_bootstrap import patient_weights

NAN = float("nan")


def roc_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """
    Area under the ROC curve: the probability that an abnormal image scores above a normal one, a tie counting half.

    The value is that of scikit-learn's ``roc_auc_score`` and MONAI's ``compute_roc_auc``. For the thousand samples of
    :func:`bootstrap_interval` they are too slow: on 200 images they take 17 and more, and four times as long.

    Args:
        labels: ``(M,)`` of 0 and 1.
        scores: ``(M,)``.

    Returns:
        In [0, 1]; NaN for one class only.

    Raises:
        ValueError: for empty or unequal lengths, other labels, or a score that is NaN (all functions here).

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


def average_precision(labels: ArrayLike, scores: ArrayLike) -> float:
    """
    Precision averaged over the steps of recall, without interpolation; equal scores are one step.

    Args:
        labels: ``(M,)`` of 0 and 1.
        scores: ``(M,)``.

    Returns:
        In (0, 1], the share of abnormal images for a detector by chance; NaN for one class only.

    Example:
        >>> round(average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
        0.8333
    """
    truth, values = checked_labels(labels, scores)
    if truth.all() or not truth.any():
        return NAN
    _, hits, alarms = alarm_counts(truth, values)
    gains = np.diff(hits, prepend=0) / truth.sum()
    return float((gains * hits / alarms).sum())


def best_f1_threshold(labels: ArrayLike, scores: ArrayLike) -> float:
    """
    The score that, as a threshold, gives the best F1; of several the largest, which raises the fewest alarms.

    Args:
        labels: ``(M,)`` of 0 and 1, of the validation set.
        scores: ``(M,)``.

    Returns:
        One of the scores; NaN for one class only.

    Example:
        >>> best_f1_threshold([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        0.35
    """
    truth, values = checked_labels(labels, scores)
    if truth.all() or not truth.any():
        return NAN
    thresholds, hits, alarms = alarm_counts(truth, values)
    return float(thresholds[np.argmax(2 * hits / (alarms + truth.sum()))])


def metrics_at_threshold(
    labels: ArrayLike, scores: ArrayLike, threshold: float
) -> dict[str, float]:
    """
    Accuracy, F1, sensitivity and specificity, when every score >= threshold is called abnormal.

    Args:
        labels: ``(M,)`` of 0 and 1.
        scores: ``(M,)``.
        threshold: found on other images than these.

    Returns:
        "accuracy", "f1", "sensitivity", "specificity", each in [0, 1]. F1 and sensitivity are NaN without an abnormal
        image, specificity without a normal one, and all four for the threshold NaN.

    Example:
        >>> metrics_at_threshold([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], threshold=0.5)
        {'accuracy': 0.75, 'f1': 0.6666666666666666, 'sensitivity': 0.5, 'specificity': 1.0}
    """
    truth, values = checked_labels(labels, scores)
    if np.isnan(threshold):
        return dict.fromkeys(("accuracy", "f1", "sensitivity", "specificity"), NAN)
    alarm = values >= threshold
    hits, abnormal, alarms = (int(x.sum()) for x in (truth & alarm, truth, alarm))
    normal = truth.size - abnormal
    rejections = normal - (alarms - hits)
    return {
        "accuracy": (hits + rejections) / truth.size,
        "f1": 2 * hits / (alarms + abnormal) if abnormal else NAN,
        "sensitivity": hits / abnormal if abnormal else NAN,
        "specificity": rejections / normal if normal else NAN,
    }


def bootstrap_interval(
    metric: Callable[[NDArray, NDArray], Any],
    labels: ArrayLike,
    scores: ArrayLike,
    num_samples: int = 1000,
    seed: int = 0,
    patients: ArrayLike | None = None,
) -> tuple[Any, Any]:
    """
    Percentile interval of 95 % of a metric over random samples, drawn with replacement: of patients, or of images.

    Images of one patient are not independent, so patients are drawn where some have several images. Where all have
    one, images are drawn within each class, which keeps the sizes of the classes.

    Args:
        metric: of (labels, scores), such as :func:`roc_auc`; one number or a list of K.
        labels: ``(M,)`` of 0 and 1.
        scores: ``(M,)``.
        num_samples: how many samples to draw, at least 1.
        seed: of the draws; the same seed gives the same interval.
        patients: ``(M,)``, of the images; None where each image has its own.

    Returns:
        Lower and upper end, numbers or lists of K; samples of patients that lack a class are left out. NaN where
        the metric is never defined, or not on some sample of images, and for several images of one patient.

    Raises:
        ValueError: also for no sample.

    Example:
        >>> bootstrap_interval(roc_auc, [0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], num_samples=20)
        (1.0, 1.0)
    """
    truth, values = checked_labels(labels, scores)
    if num_samples < 1:
        raise ValueError(f"num_samples must be >= 1, got {num_samples}")
    if len(truth) > 1 and patients is not None and len(set(np.asarray(patients).tolist())) == 1:
        unknown = (np.asarray(metric(truth, values)) * NAN).tolist()
        return unknown, unknown
    results = [
        metric(truth[drawn], values[drawn])
        for drawn in _samples(truth, num_samples, seed, patients)
    ]
    if patients is not None:
        results = [result for result in results if not np.isnan(result).any()] or results
    lower, upper = np.quantile(results, [0.025, 0.975], axis=0).tolist()
    return lower, upper


def _samples(
    truth: NDArray, num_samples: int, seed: int, patients: ArrayLike | None
) -> Iterator[NDArray[np.intp]]:
    """Numbers of the images of each sample."""
    if patients is not None and len(set(np.asarray(patients).tolist())) < len(truth):
        for counts in patient_weights(patients, num_samples, seed):
            yield np.repeat(np.arange(len(truth)), counts.astype(int))
        return
    rng = np.random.default_rng(seed)
    classes = [np.flatnonzero(truth == kind) for kind in (False, True)]
    for _ in range(num_samples):
        yield np.concatenate(
            [rng.choice(members, members.size) for members in classes if members.size]
        )


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


def mean_of_defined(values: Sequence[float]) -> float:
    """Mean of the numbers that are not NaN; NaN without one."""
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else NAN


def descending_order(values: NDArray) -> tuple[NDArray, NDArray]:
    """Order from the largest value down, and the last place in it of each distinct value."""
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    return order, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))


def alarm_counts(truth: NDArray, values: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Thresholds from the largest score down, true alarms and all alarms at each."""
    order, last = descending_order(values)
    return values[order][last], np.cumsum(truth[order])[last], last + 1


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
        shown = f"{bad[:10].tolist()}" + (f" and {bad.size - 10} more" if bad.size > 10 else "")
        raise ValueError(
            f"{name} at index {shown} are NaN: an exploded or wrongly loaded network; leave none out"
        )
    return values
