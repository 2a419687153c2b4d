# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics over random samples of whole patients: the images of one patient are not independent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray


def patient_weights(patients: Sequence[object], num_samples: int, seed: int = 0) -> NDArray[np.float64]:
    """
    How often each image is in each of some samples of patients, drawn with replacement.

    Args:
        patients: ``(M,)``, the patient of each image.
        num_samples: samples of as many patients as there are.
        seed: of the draws.

    Returns:
        ``(num_samples, M)``, whole numbers; the images of one patient have the same.

    Example:
        >>> patient_weights(["a", "a", "b"], num_samples=3).astype(int).tolist()
        [[1, 1, 1], [1, 1, 1], [0, 0, 2]]
    """
    codes, known = pd.factorize(np.asarray(patients, dtype=object))
    drawn = np.random.default_rng(seed).multinomial(len(known), np.full(len(known), 1 / len(known)), num_samples)
    return drawn[:, codes].astype(np.float64)


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
    truth, values, decided = (np.asarray(each, dtype=np.float64) for each in (labels, scores, decisions))
    rank = np.argsort(values)
    negative, positive = rank[truth[rank] == 0], rank[truth[rank] == 1]
    # weight of the negative images below each place among them
    below = np.pad(np.cumsum(weights[:, negative], axis=1), ((0, 0), (1, 0)))
    first, last = (np.searchsorted(values[negative], values[positive], side) for side in ("left", "right"))
    present, absent = weights[:, positive].sum(1), below[:, -1]
    with np.errstate(invalid="ignore"):
        auc = (weights[:, positive] * (below[:, first] + below[:, last])).sum(1) / (2 * present * absent)
        sensitivity = weights @ (truth * decided) / present
        specificity = weights @ ((1 - truth) * (1 - decided)) / absent
    return np.stack([auc, sensitivity, specificity], axis=1)
