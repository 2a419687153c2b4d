# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""P-values against normal images of another mixture than the images at hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def weighted_p_values(
    scores: ArrayLike, normal_scores: ArrayLike, normal_weights: ArrayLike, weights: ArrayLike
) -> NDArray[np.float64]:
    r"""
    Conformal p-values where the normal images are of another mixture than the image at hand.

    .. math::
        p(x) = \frac{w(x) + \sum_{i : s_i \ge s(x)} w_i}{w(x) + \sum_i w_i}

    with weights w proportional to how much more often an image like this one is met now than among the normal images
    (Tibshirani et al., Conformal Prediction Under Covariate Shift, NeurIPS 2019). Equal weights give
    :func:`conformal_p_values`, weights of 0 and 1 those of one group of the normal images.

    Args:
        scores: ``(M,)``, the larger the more abnormal; NaN has no p-value.
        normal_scores: ``(n,)``, finite.
        normal_weights: ``(n,)``, or ``(M, n)`` where they differ between the images; >= 0.
        weights: ``(M,)`` of the images themselves; > 0.

    Returns:
        ``(M,)`` in (0, 1]; NaN without a score.

    Raises:
        ValueError: for weights that are negative or no numbers.

    Example:
        >>> weighted_p_values([1.5], [1, 2, 3], [1, 1, 6], [2]).tolist()
        [0.9]
    """
    values, normal = np.asarray(scores, dtype=float), np.asarray(normal_scores, dtype=float)
    own = np.asarray(weights, dtype=float)
    given = np.broadcast_to(np.asarray(normal_weights, dtype=float), (len(values), len(normal)))
    if not (given >= 0).all() or not (own > 0).all():
        raise ValueError("weights must be numbers of at least 0, and above 0 for the images")
    at_least = np.where(normal >= values[:, None], given, 0).sum(1)
    p_values = (own + at_least) / (own + given.sum(1))
    return np.where(np.isnan(values), np.nan, p_values)
