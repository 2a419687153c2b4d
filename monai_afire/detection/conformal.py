# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Conformal p-values of anomaly scores, and how many normal images they need."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def conformal_p_values(scores: ArrayLike, normal_scores: ArrayLike) -> NDArray[np.float64]:
    r"""
    Share of normal images that score at least as high, so small values mean abnormal.

    .. math:: p(x) = \frac{1 + |\{i : s_i \ge s(x)\}|}{n + 1}

    with the scores :math:`s_i` of n normal images that the detector was not fitted to (Bates et al., Annals of
    Statistics 2023). If x is normal and exchangeable with them, :math:`P(p(x) \le \alpha) \le \alpha` for every n.
    No p-value is below 1 / (n + 1).

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


def normals_needed(level: float) -> int:
    """
    How many normal images make p-values that can reach a level.

    Args:
        level: in (0, 1).

    Returns:
        The least n with 1 / (n + 1) <= level.

    Raises:
        ValueError: for a level out of range.

    Example:
        >>> normals_needed(0.05), normals_needed(0.01)
        (19, 99)
    """
    if not 0 < level < 1:
        raise ValueError(f"the level must be in (0, 1), got {level}")
    return math.ceil(1 / level - 1 - 1e-9)
