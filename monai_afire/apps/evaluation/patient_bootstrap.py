# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics over random samples of whole patients: the images of one patient are not independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from monai_afire.metrics.binary_classification import NAN, descending_order

# with 30 patients, 6 of them of the rarer label, an interval of 95 % held in 94 % of simulated comparisons; with 20
# and 4 in 90 %, with 10 and 2 in 75 %
LEAST_PATIENTS = 30
LEAST_PATIENTS_OF_A_LABEL = 6
METRICS = ("auc", "average_precision", "accuracy", "f1", "sensitivity", "specificity")
INTERVAL = (0.025, 0.975)


def patient_weights(
    patients: ArrayLike, num_samples: int, seed: int = 0, include_original: bool = False
) -> NDArray[np.float64]:
    """
    How often each image is in each of some samples of patients, drawn with replacement.

    Args:
        patients: ``(M,)``, the patient of each image; None and NaN are one patient.
        num_samples: samples of as many patients as there are, at least 0.
        seed: of the draws.
        include_original: put a row of ones first, in which each image is once.

    Returns:
        ``(num_samples, M)``, whole numbers; the images of one patient have the same. One row more with the original.
        NaN where all images are of one patient: the samples would be alike, as if nothing were left to chance.

    Raises:
        ValueError: for a negative number of samples.
    """
    if num_samples < 0:
        raise ValueError(f"num_samples must be at least 0, got {num_samples}")
    codes, known = pd.factorize(np.asarray(patients, dtype=object), use_na_sentinel=False)
    if not len(known):
        return np.empty((num_samples + include_original, 0))
    shares = np.full(len(known), 1 / len(known))
    drawn = np.random.default_rng(seed).multinomial(len(known), shares, num_samples)
    weights = drawn[:, codes].astype(np.float64)
    if len(known) == 1:
        weights[:] = np.nan
    return np.vstack([np.ones(len(codes)), weights]) if include_original else weights


def weighted_metrics(
    weights: NDArray[np.float64], labels: ArrayLike, scores: ArrayLike, threshold: float = NAN
) -> pd.DataFrame:
    r"""
    Metrics of one binary decision about weighted images, for many sets of weights at once.

    .. math:: AUC = \frac{\sum_{p, n} w_p w_n ([s_p > s_n] + [s_p = s_n] / 2)}{\sum_p w_p \sum_n w_n}

    with positive images p, negative ones n, weights w and scores s. Average precision adds up the precision over the
    steps of recall, without interpolation; equal scores are one step.

    Args:
        weights: ``(R, M)``, at least 0; ones give the metrics of the images themselves.
        labels: ``(M,)`` of 0 and 1.
        scores: ``(M,)``, larger for 1, without NaN.
        threshold: a score that is not below it decides for 1; NaN for no decision.

    Returns:
        R rows with "auc", "average_precision", "accuracy", "f1", "sensitivity" and "specificity", each in [0, 1]; NaN
        where a set of weights does not define it: the first two need a positive and a negative image, F1 and
        sensitivity a positive one, specificity a negative one.
    """
    values = np.asarray(scores, dtype=float)
    if not len(values):
        return pd.DataFrame(NAN, index=range(len(weights)), columns=METRICS)
    order, last = descending_order(values)
    truth = np.asarray(labels)[order] == 1
    # of the distinct scores, the largest first
    num_alarms = None if np.isnan(threshold) else int((values[order][last] >= threshold).sum())
    with np.errstate(invalid="ignore"):
        rows = [_metrics(sample[order], truth, last, num_alarms) for sample in weights]
    return pd.DataFrame(rows, columns=METRICS)


def _metrics(
    weights: NDArray, truth: NDArray, last: NDArray, num_alarms: int | None
) -> tuple[float, ...]:
    """``METRICS`` of images by falling score, with the last place of each distinct score and how many are alarms."""
    own = weights * truth
    hits = np.append(0, np.cumsum(own)[last])
    false_alarms = np.append(0, np.cumsum(weights - own)[last])
    positive, negative = hits[-1], false_alarms[-1]
    area = (np.diff(false_alarms) * (hits[1:] + hits[:-1])).sum() / 2
    precision = np.nan_to_num(hits[1:] / (hits[1:] + false_alarms[1:]))
    average_precision = (np.diff(hits) * precision).sum() / positive if negative else NAN
    ranked = area / (positive * negative), average_precision
    if num_alarms is None:
        return *ranked, NAN, NAN, NAN, NAN
    found, mistaken = hits[num_alarms], false_alarms[num_alarms]
    rejected = negative - mistaken
    accuracy = (found + rejected) / (positive + negative)
    f1 = 2 * found / (found + mistaken + positive) if positive else NAN
    return *ranked, accuracy, f1, found / positive, rejected / negative


def with_intervals(measured: pd.DataFrame) -> dict[str, Any]:
    """
    Metrics of the first row, and of the others, which are of samples, "<metric>_interval": their 95 % interval.

    A sample that does not define a metric (NaN) is left out of its interval.
    """
    entry: dict[str, Any] = measured.iloc[0].to_dict()
    if len(measured) > 1:
        limits = measured.iloc[1:].quantile(INTERVAL)
        entry |= {f"{name}_interval": limits[name].tolist() for name in measured}
    return entry


def bootstrap_aucs(
    labels: NDArray, scores: NDArray, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """
    Area under the ROC curve of weighted images, the mean over the findings that have both labels in a sample.

    Args:
        labels: ``(M, K)``: 1 present, 0 absent, NaN unknown.
        scores: ``(M, K)``, finite.
        weights: ``(B, M)`` of :func:`patient_weights`; ones give the AUC itself.

    Returns:
        ``(B,)`` in [0, 1]; NaN for a sample in which no finding has both labels.
    """
    found = []
    for truth, values in zip(labels.T, scores.T, strict=True):
        known = ~np.isnan(truth)
        found.append(weighted_metrics(weights[:, known], truth[known], values[known])["auc"])
    return np.ma.masked_invalid(found).mean(0).filled(NAN)


def bootstrap_p_value(differences: ArrayLike) -> float:
    """
    Two-sided p that a difference is zero: 2 (k + 1) / (B + 1), where k of B samples are on the rarer side of zero.

    Adding one keeps p from being too small where no sample is there (Davison and Hinkley, 1997, chapter 4).

    Args:
        differences: ``(B,)`` of two AUCs in the same samples; NaN is left out.

    Returns:
        p in [2 / (B + 1), 1]; NaN without a difference, and where all samples have the same, as those of one patient.
    """
    values = np.asarray(differences, dtype=float)
    values = values[~np.isnan(values)]
    if not len(values) or (len(values) > 1 and values[0] != 0 and np.ptp(values) == 0):
        return NAN
    rarer = min((values <= 0).sum(), (values >= 0).sum())
    return float(min(1.0, 2 * (rarer + 1) / (len(values) + 1)))
