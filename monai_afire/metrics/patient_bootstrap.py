# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bootstrap by patient: samples of the patients as weights of their images, and the AUC of weighted images."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def patient_weights(patients: ArrayLike, draws: int, seed: int = 0) -> NDArray[np.float64]:
    """
    How often each image is in samples of the patients, drawn with replacement: all images of a patient, or none.

    Args:
        patients: ``(M,)``, name of each image's patient.
        draws: number of samples B.
        seed: the same seed and patients give the same samples, so that scores can be compared in pairs.

    Returns:
        ``(B, M)`` whole numbers from 0.

    Example:
        >>> patient_weights(["a", "a", "b"], draws=3).tolist()
        [[0.0, 0.0, 2.0], [1.0, 1.0, 1.0], [2.0, 2.0, 0.0]]
    """
    names, numbers = np.unique(np.asarray(patients), return_inverse=True)
    random = np.random.default_rng(seed)
    samples = [np.bincount(random.integers(len(names), size=len(names)), minlength=len(names)) for _ in range(draws)]
    return np.array(samples, dtype=float).reshape(draws, len(names))[:, numbers]


def bootstrap_aucs(labels: NDArray, scores: NDArray, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""
    Area under the ROC curve of weighted images, the mean over the findings that have both labels in a sample.

    .. math:: \frac{\sum_{i \in P} \sum_{j \in N} w_i w_j \left([s_i > s_j] + \frac12 [s_i = s_j]\right)}
        {\sum_{i \in P} w_i \sum_{j \in N} w_j}

    over the present labels P and the absent ones N. One sort serves all samples.

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
    pairs = zip(labels.T, scores.T, strict=True)
    return np.ma.masked_invalid([_weighted_aucs(*pair, weights) for pair in pairs]).mean(0).filled(np.nan)


def _weighted_aucs(truth: NDArray, scores: NDArray, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """AUC ``(B,)`` of one finding in each sample."""
    present, absent = truth == 1, truth == 0
    order = np.argsort(scores[absent])
    below = np.pad(weights[:, absent][:, order].cumsum(1), ((0, 0), (1, 0)))  # weight of the absent up to each place
    first, last = (np.searchsorted(scores[absent][order], scores[present], side) for side in ("left", "right"))
    wins = (weights[:, present] * (below[:, first] + below[:, last]) / 2).sum(1)  # equal scores count half
    pairs = weights[:, present].sum(1) * below[:, -1]
    return np.divide(wins, pairs, out=np.full(len(weights), np.nan), where=pairs > 0)


def bootstrap_p_value(differences: ArrayLike) -> float:
    """
    Two-sided p that a difference is zero, by how many samples have it on the other side.

    Args:
        differences: ``(B,)`` of two AUCs in the same samples; NaN is left out.

    Returns:
        p in [1 / B, 1]; NaN without a difference.

    Example:
        >>> bootstrap_p_value([0.1, 0.2, 0.1, 0.3]), bootstrap_p_value([0.1, -0.1])
        (0.25, 1.0)
    """
    values = np.asarray(differences, dtype=float)
    values = values[~np.isnan(values)]
    opposite = min((values <= 0).mean(), (values >= 0).mean()) if len(values) else float("nan")
    return float(np.minimum(1.0, 2 * opposite + 1 / max(1, len(values))))
