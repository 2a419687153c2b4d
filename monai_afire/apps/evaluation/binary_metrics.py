# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of a binary decision beside its AUC, with intervals by patient; what labels and scores mean as there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from monai_afire.apps.evaluation.patient_bootstrap import patient_weights
from monai_afire.metrics.binary_classification import NAN, checked_labels


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
    from sklearn.metrics import average_precision_score  # takes a second to import

    truth, values = checked_labels(labels, scores)
    if truth.all() or not truth.any():
        return NAN
    ranks = rankdata(values)  # the order alone matters, and scikit-learn refuses infinite scores
    return float(average_precision_score(truth, ranks))


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
        >>> from monai_afire.metrics.binary_classification import roc_auc
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
