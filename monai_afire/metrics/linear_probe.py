# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Linear probe: logistic regression on the features of a frozen encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from monai_afire.metrics.multilabel import mean_auc
from monai_afire.utils.uncertain_labels import check_label_kind

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_SMALLEST_DEVIATION = 1e-6  # a feature that is the same for all images stays zero


@dataclass(frozen=True)
class LinearProbe:
    r"""
    A linear layer on standardized features.

    .. math:: \text{logits} = W\,\frac{x - \mu}{\sigma} + b

    Attributes:
        mean: μ, ``(D,)``, of the training features.
        deviation: σ, ``(D,)``, above 0.
        weight: W, ``(K, D)``.
        bias: b, ``(K,)``.
        penalty: inverse strength of the L2 penalty that was chosen.
        validation_auc: mean AUC in [0, 1] on the validation features.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    penalty: float = 1.0
    validation_auc: float = float("nan")

    def logits(self, features: ArrayLike) -> NDArray[np.float64]:
        """``(M, K)`` logits of features ``(M, D)``."""
        standardized = (np.asarray(features, dtype=np.float64) - self.mean) / self.deviation
        return standardized @ self.weight.T + self.bias


def fit_linear_probe(
    features: ArrayLike,
    labels: ArrayLike,
    val_features: ArrayLike,
    val_labels: ArrayLike,
    label_kind: str = "multilabel",
    penalties: Sequence[float] = PENALTIES,
) -> LinearProbe:
    """
    Fit a logistic regression for each penalty and keep the one with the highest mean AUC on the validation images.

    Findings are fitted one by one on the images whose label is known. A finding that no training image shows, or that
    all show, has zero weights and the logit of its frequency as its bias. Exclusive classes are fitted together.

    Args:
        features: ``(M, D)``, finite, of the training images.
        labels: ``(M, K)``: 1 present, 0 absent, NaN unknown; for "multiclass" one-hot rows or rows of NaN.
        val_features: ``(V, D)``.
        val_labels: ``(V, K)``.
        label_kind: "multilabel" or "multiclass".
        penalties: inverse strengths of the L2 penalty to try.

    Returns:
        The probe. Where no validation label has both values, the strongest penalty is kept.

    Raises:
        ValueError: for features that are not finite, or other labels.
    """
    known, truth = _checked(features, labels)
    val_known, val_truth = _checked(val_features, val_labels)
    check_label_kind(label_kind, truth.shape[1])
    mean, deviation = known.mean(0), np.maximum(known.std(0), _SMALLEST_DEVIATION)
    standardized = (known - mean) / deviation
    fit = _fit_classes if label_kind == "multiclass" else _fit_findings
    probes = []
    for penalty in sorted(penalties):
        probe = LinearProbe(mean, deviation, *fit(standardized, truth, penalty), penalty)
        auc = mean_auc(val_truth, probe.logits(val_known))
        probes.append(replace(probe, validation_auc=auc))
    # of equal ones the first, which has the strongest penalty
    return max(probes, key=lambda probe: np.nan_to_num(probe.validation_auc, nan=-1.0))


def _checked(
    features: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as float64, once they fit."""
    values, truth = np.asarray(features, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("the features are not finite: check the encoder's weights and the images")
    if not (np.isnan(truth) | (truth == 0) | (truth == 1)).all():
        raise ValueError("labels must be 0, 1 or NaN: see resolve_uncertain()")
    return values, truth


def _fit_findings(
    features: NDArray[np.float64], labels: NDArray[np.float64], penalty: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One regression for each finding."""
    weight, bias = np.zeros((labels.shape[1], features.shape[1])), np.zeros(labels.shape[1])
    for k, finding in enumerate(labels.T):
        known = ~np.isnan(finding)
        positive, total = np.nansum(finding), known.sum()
        bias[k] = np.log((positive + 0.5) / (total - positive + 0.5))
        if 0 < positive < total:
            model = LogisticRegression(C=penalty, max_iter=500).fit(features[known], finding[known])
            weight[k], bias[k] = model.coef_[0], model.intercept_[0]
    return weight, bias


def _fit_classes(
    features: NDArray[np.float64], labels: NDArray[np.float64], penalty: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One regression over all classes; a class without an image keeps a small share."""
    known = ~np.isnan(labels).any(1)
    counts = labels[known].sum(0)
    weight, bias = np.zeros((labels.shape[1], features.shape[1])), np.log(counts + 0.5)
    if (counts > 0).sum() < 2:
        return weight, bias
    model = LogisticRegression(C=penalty, max_iter=500).fit(
        features[known], labels[known].argmax(1)
    )
    present = model.classes_
    slopes, offset = model.coef_, model.intercept_
    if len(present) == 2:
        # one row, the logit of the second against the first
        slopes = np.vstack([-slopes, slopes]) / 2
        offset = np.concatenate([-offset, offset]) / 2
    weight[present], bias[present] = slopes, offset
    bias[counts == 0] = offset.min() - np.log(2 * counts.sum() + 1)
    return weight, bias
