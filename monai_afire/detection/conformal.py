# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Conformal p-values of anomaly scores, how many normal images they need, and which images remain at a rate."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import false_discovery_control


def conformal_p_values(scores: ArrayLike, normal_scores: ArrayLike) -> NDArray[np.float64]:
    r"""
    Share of normal images that score at least as high, so small values mean abnormal.

    .. math:: p(x) = \frac{1 + |\{i : s_i \ge s(x)\}|}{n + 1}

    with the scores :math:`s_i` of n normal images that the detector was not fitted to (Bates et al., Annals of
    Statistics 2023). If x is normal and exchangeable with them, :math:`P(p(x) \le \alpha) \le \alpha` for every n.

    Args:
        scores: ``(M,)``, the larger the more abnormal; NaN has no p-value.
        normal_scores: ``(n,)``; NaN is left out.

    Returns:
        ``(M,)`` in (0, 1]; NaN without a score or normal scores.

    Example:
        >>> conformal_p_values([0.5, 2.0, 9.0], [0, 1, 2, 3]).tolist()
        [0.8, 0.6, 0.2]
    """
    values, normal = np.asarray(scores, dtype=float), np.asarray(normal_scores, dtype=float)
    normal = np.sort(normal[~np.isnan(normal)])
    if not len(normal):
        return np.full(values.shape, np.nan)
    at_least = len(normal) - np.searchsorted(normal, values, side="left")
    return np.where(np.isnan(values), np.nan, (1 + at_least) / (1 + len(normal)))


def weighted_p_values(
    scores: ArrayLike, normal_scores: ArrayLike, normal_weights: ArrayLike, weights: ArrayLike
) -> NDArray[np.float64]:
    r"""
    Conformal p-values where the normal images are of another mixture than the image at hand.

    .. math:: p(x) = \frac{w(x) + \sum_{i : s_i \ge s(x)} w_i}{w(x) + \sum_i w_i}

    with weights proportional to how much more often an image like this one is met now than among the normal images
    (Tibshirani et al., NeurIPS 2019). Equal weights give :func:`conformal_p_values`, weights of 0 and 1 those of one
    group of the normal images.

    Args:
        scores: ``(M,)``, the larger the more abnormal; NaN has no p-value.
        normal_scores: ``(n,)``, finite.
        normal_weights: ``(n,)``, or ``(M, n)`` where they differ between the images; >= 0.
        weights: ``(M,)`` of the images themselves; > 0.

    Returns:
        ``(M,)`` in (0, 1]; NaN without a score.
    """
    values, normal = np.asarray(scores, dtype=float), np.asarray(normal_scores, dtype=float)
    own = np.asarray(weights, dtype=float)
    given = np.broadcast_to(np.asarray(normal_weights, dtype=float), (len(values), len(normal)))
    at_least = np.where(normal >= values[:, None], given, 0).sum(1)
    p_values = (own + at_least) / (own + given.sum(1))
    return np.where(np.isnan(values), np.nan, p_values)


def normals_needed(level: float) -> int:
    """
    The least number n of normal images whose p-values can reach a level: 1 / (n + 1) <= level.

    Raises:
        ValueError: for a level that is not in (0, 1).

    Example:
        >>> normals_needed(0.05), normals_needed(0.01)
        (19, 99)
    """
    if not 0 < level < 1:
        raise ValueError(f"specificity must be in (0, 1), got {1 - level:g}")
    return math.ceil(1 / level - 1 - 1e-9)


def discoveries(p_values: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """
    Images that the procedure of Benjamini and Hochberg calls abnormal.

    On average, at most a share ``rate`` of them is normal. This holds for conformal p-values, too (Bates et al. 2023).

    Args:
        p_values: ``(M,)`` in [0, 1], or NaN for unknown, which are no discoveries.
        rate: false discovery rate in (0, 1).

    Returns:
        ``(M,)``.

    Example:
        >>> discoveries([0.01, 0.02, 0.2, 0.9], rate=0.1).tolist()
        [True, True, False, False]
    """
    values = np.asarray(p_values, dtype=float)
    found = np.zeros(values.shape, dtype=bool)
    known = np.isfinite(values)
    if known.any():
        found[known] = false_discovery_control(values[known]) <= rate
    return found
