# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics over random samples of whole patients: the images of one patient are not independent."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

# with 30 patients, 6 of them of the rarer label, an interval of 95 % held in 94 % of simulated comparisons; with 20
# and 4 in 90 %, with 10 and 2 in 75 %
LEAST_PATIENTS = 30
LEAST_PATIENTS_OF_A_LABEL = 6


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

    Example:
        >>> patient_weights(["a", "a", "b"], num_samples=3).astype(int).tolist()
        [[1, 1, 1], [1, 1, 1], [0, 0, 2]]
    """
    if num_samples < 0:
        raise ValueError(f"num_samples must be at least 0, got {num_samples}")
    codes, known = pd.factorize(np.asarray(patients, dtype=object), use_na_sentinel=False)
    if not len(known):
        return np.empty((num_samples + include_original, 0))
    drawn = np.random.default_rng(seed).multinomial(
        len(known), np.full(len(known), 1 / len(known)), num_samples
    )
    weights = drawn[:, codes].astype(np.float64)
    if len(known) == 1:
        weights[:] = np.nan
    return np.vstack([np.ones(len(codes)), weights]) if include_original else weights


def weighted_metrics(
    weights: NDArray[np.float64], labels: ArrayLike, scores: ArrayLike, decisions: ArrayLike
) -> NDArray[np.float64]:
    r"""
    AUC, sensitivity and specificity of weighted images, for many sets of weights at once.

    .. math:: AUC = \frac{\sum_{p, n} w_p w_n ([s_p > s_n] + [s_p = s_n] / 2)}{\sum_p w_p \sum_n w_n}

    with positive images p, negative ones n, weights w and scores s.

    Args:
        weights: ``(R, M)``, at least 0.
        labels: ``(M,)`` of 0 and 1.
        scores: ``(M,)``.
        decisions: ``(M,)`` of 0 and 1, or NaN for none.

    Returns:
        ``(R, 3)``, each in [0, 1]; NaN where a set has no positive or no negative image.

    Example:
        >>> weighted_metrics(np.array([[1.0, 1, 1, 1], [1, 0, 0, 1]]), [0, 0, 1, 1], [0.1, 0.4, 0.3, 0.8], [0, 1, 0, 1])
        array([[0.75, 0.5 , 0.5 ],
               [1.  , 1.  , 1.  ]])
    """
    truth, values, decided = (
        np.asarray(each, dtype=np.float64) for each in (labels, scores, decisions)
    )
    rank = np.argsort(values)
    negative, positive = rank[truth[rank] == 0], rank[truth[rank] == 1]
    # weight of the negative images below each place among them
    below = np.pad(np.cumsum(weights[:, negative], axis=1), ((0, 0), (1, 0)))
    first, last = (
        np.searchsorted(values[negative], values[positive], side) for side in ("left", "right")
    )
    present, absent = weights[:, positive].sum(1), below[:, -1]
    with np.errstate(invalid="ignore"):
        auc = (weights[:, positive] * (below[:, first] + below[:, last])).sum(1) / (
            2 * present * absent
        )
        sensitivity = weights @ (truth * decided) / present
        specificity = weights @ ((1 - truth) * (1 - decided)) / absent
    return np.stack([auc, sensitivity, specificity], axis=1)


def bootstrap_aucs(
    labels: NDArray, scores: NDArray, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""
    Area under the ROC curve of weighted images, the mean over the findings that have both labels in a sample.

    .. math:: \frac{\sum_{i \in P} \sum_{j \in N} w_i w_j \left([s_i > s_j] + \frac12 [s_i = s_j]\right)}
        {\sum_{i \in P} w_i \sum_{j \in N} w_j}

    over the present labels P and the absent ones N.

    Args:
        labels: ``(M, K)``: 1 present, 0 absent, NaN unknown.
        scores: ``(M, K)``, finite.
        weights: ``(B, M)`` of :func:`patient_weights`; ones give the AUC itself.

    Returns:
        ``(B,)`` in [0, 1]; NaN for a sample in which no finding has both labels.

    Example:
        >>> labels, scores = np.array([[0], [0], [1], [1]]), np.array([[0.1], [0.4], [0.4], [0.8]])
        >>> bootstrap_aucs(labels, scores, np.ones((1, 4)))
        array([0.875])
    """
    found = []
    for truth, values in zip(labels.T, scores.T, strict=True):
        known = ~np.isnan(truth)
        found.append(
            weighted_metrics(weights[:, known], truth[known], values[known], truth[known])[:, 0]
        )
    return np.ma.masked_invalid(found).mean(0).filled(np.nan)


def bootstrap_p_value(differences: ArrayLike) -> float:
    """
    Two-sided p that a difference is zero: 2 (k + 1) / (B + 1), where k of B samples are on the rarer side of zero.

    Adding one keeps p from being too small where no sample is there (Davison and Hinkley, 1997, chapter 4).

    Args:
        differences: ``(B,)`` of two AUCs in the same samples; NaN is left out.

    Returns:
        p in [2 / (B + 1), 1]; NaN without a difference, and where all samples have the same, as those of one patient.

    Example:
        >>> bootstrap_p_value([0.1, 0.2, 0.1, 0.3]), bootstrap_p_value([0.1, -0.1])
        (0.4, 1.0)
    """
    values = np.asarray(differences, dtype=float)
    values = values[~np.isnan(values)]
    if not len(values) or (len(values) > 1 and values[0] != 0 and np.ptp(values) == 0):
        return float("nan")
    rarer = min((values <= 0).sum(), (values >= 0).sum())
    return float(min(1.0, 2 * (rarer + 1) / (len(values) + 1)))
