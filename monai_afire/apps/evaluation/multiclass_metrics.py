# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of the classification into exclusive classes, of which an image has one: grades, diagnoses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.evaluation.classification_metrics import mean_auc_interval
from monai_afire.metrics.binary_classification import NAN, mean_of_defined, roc_auc
from monai_afire.metrics.multilabel import check_class_names

UNKNOWN = -1
_SUM_TOLERANCE = 1e-4


def multiclass_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    class_names: Sequence[str],
    num_bootstraps: int = 0,
    patients: ArrayLike | None = None,
) -> dict[str, Any]:
    """
    Metrics of the decisions (the most probable class) and of the probabilities.

    Args:
        labels: ``(M,)``, the number of each image's class from 0 to K - 1, or -1 where it is not known: such images
            are left out.
        probabilities: ``(M, K)``, of which each row sums to 1.
        class_names: K names, K > 1; of grades in their order, which the kappa needs.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.
        patients: ``(M,)``, the patient of each image; None for as many patients as images.

    Returns:
        A dictionary.

        * "num_images": those whose class is known;
        * "mean_auc": macro-average of each class against the others, over the classes that occur (but not alone);
        * "mean_auc_interval": its 95 % interval over samples of patients, only with ``num_bootstraps``;
        * "accuracy"; "balanced_accuracy": mean sensitivity of the classes that occur;
        * "quadratic_weighted_kappa": see :func:`quadratic_weighted_kappa`;
        * "expected_calibration_error": of the decisions, see :func:`expected_calibration_error`;
        * "confusion_matrix": K lists, see :func:`confusion_matrix`;
        * "per_class": ``{name: {"auc", "sensitivity", "precision", "f1", "num_images", "num_predicted"}}``, NaN where
          not defined.

        All are NaN when no class is known.

    Raises:
        ValueError: for shapes that do not fit, labels out of range, probabilities that do not sum to 1.

    Example:
        >>> probabilities = [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]
        >>> metrics = multiclass_metrics([0, 1, 2, 2], probabilities, ["none", "mild", "severe"])
        >>> metrics["accuracy"], round(metrics["quadratic_weighted_kappa"], 3), metrics["confusion_matrix"]
        (0.75, 0.8, [[1, 0, 0], [0, 1, 0], [0, 1, 1]])
    """
    truth, values = _checked(labels, probabilities, class_names)
    decided = values.argmax(1)
    matrix = confusion_matrix(truth, decided, len(class_names))
    one_hot = (truth[:, None] == np.arange(len(class_names))).astype(float)
    per_class = {
        name: _of_class(matrix, number, one_hot[:, number], values[:, number])
        for number, name in enumerate(class_names)
    }
    summary: dict[str, Any] = {
        "num_images": len(truth),
        "mean_auc": mean_of_defined([entry["auc"] for entry in per_class.values()]),
    }
    if num_bootstraps:
        own = None if patients is None else np.asarray(patients)[np.asarray(labels) != UNKNOWN]
        summary["mean_auc_interval"] = mean_auc_interval(one_hot, values, num_bootstraps, own)
    return {
        **summary,
        "accuracy": _ratio(np.trace(matrix), matrix.sum()),
        "balanced_accuracy": mean_of_defined(
            [entry["sensitivity"] for entry in per_class.values()]
        ),
        "quadratic_weighted_kappa": quadratic_weighted_kappa(matrix),
        "expected_calibration_error": expected_calibration_error(decided == truth, values.max(1)),
        "confusion_matrix": matrix.tolist(),
        "per_class": per_class,
    }


def confusion_matrix(labels: ArrayLike, decided: ArrayLike, num_classes: int) -> NDArray[np.int64]:
    """
    How many images of each class were given which class.

    Args:
        labels: ``(M,)``, classes from 0 to K - 1.
        decided: ``(M,)``, the classes that were given.
        num_classes: K.

    Returns:
        ``(K, K)``, true classes in the rows, decisions in the columns.

    Example:
        >>> confusion_matrix([0, 1, 1], [0, 1, 0], num_classes=2)
        array([[1, 0],
               [1, 1]])
    """
    from sklearn import metrics  # takes a second to import

    if not len(labels):  # type: ignore[arg-type]
        return np.zeros((num_classes, num_classes), dtype=np.int64)
    return metrics.confusion_matrix(labels, decided, labels=range(num_classes))


def quadratic_weighted_kappa(matrix: ArrayLike) -> float:
    r"""
    Cohen's kappa with quadratic weights, the agreement of ordered grades beyond chance.

    .. math:: 1 - \frac{\sum_{ij} (i - j)^2 O_{ij}}{\sum_{ij} (i - j)^2 E_{ij}}

    with the confusion matrix O and what chance would give for its sums of rows and columns, E (Cohen 1968).

    Args:
        matrix: ``(K, K)``, see :func:`confusion_matrix`.

    Returns:
        At most 1; 0 is chance. NaN when truth and decisions are one and the same class throughout.

    Example:
        >>> quadratic_weighted_kappa([[2, 0], [0, 3]]), quadratic_weighted_kappa([[1, 1], [1, 1]])
        (1.0, 0.0)
    """
    from sklearn import metrics

    counts = np.asarray(matrix)
    if np.count_nonzero(counts.sum(0) + counts.sum(1)) < 2:
        return NAN
    truth, decided = np.indices(counts.shape).reshape(2, -1)
    return float(
        metrics.cohen_kappa_score(truth, decided, weights="quadratic", sample_weight=counts.ravel())
    )


def expected_calibration_error(
    correct: ArrayLike, confidence: ArrayLike, num_bins: int = 15
) -> float:
    r"""
    How far confidences are from accuracies (Guo et al., *On Calibration of Modern Neural Networks*, ICML 2017).

    .. math:: \sum_{m} \frac{|B_m|}{M} \left| \operatorname{acc}(B_m) - \operatorname{conf}(B_m) \right|

    with bins :math:`B_m` of equal width, each with its upper bound.

    Args:
        correct: ``(M,)`` bool, whether the decision was right.
        confidence: ``(M,)``, its probability, in [0, 1].
        num_bins: number of bins.

    Returns:
        In [0, 1], 0 is perfect; NaN without an image.

    Example:
        >>> expected_calibration_error([True, False, True, True], [0.75, 0.75, 0.75, 0.75])
        0.0
    """
    right, values = np.asarray(correct, dtype=np.float64), np.asarray(confidence, dtype=np.float64)
    if not values.size:
        return NAN
    bins = np.clip(np.ceil(values * num_bins) - 1, 0, num_bins - 1).astype(np.int64)
    gaps = np.bincount(bins, weights=right - values, minlength=num_bins)
    return float(np.abs(gaps).sum() / values.size)


def _checked(
    labels: ArrayLike, probabilities: ArrayLike, class_names: Sequence[str]
) -> tuple[NDArray, NDArray]:
    """Classes and probabilities of the images whose class is known."""
    truth, values = (
        np.asarray(labels, dtype=np.float64),
        np.asarray(probabilities, dtype=np.float64),
    )
    if truth.ndim != 1 or values.ndim != 2 or len(truth) != len(values) or not len(truth):
        raise ValueError(
            f"labels have shape {truth.shape}, probabilities {values.shape}, not (M,) and (M, K), M > 0"
        )
    check_class_names(class_names, values.shape[1])
    wrong = truth[~np.isin(truth, range(UNKNOWN, len(class_names)))]
    if wrong.size:
        known = f"numbers from 0 to {len(class_names) - 1} (or -1, unknown)"
        raise ValueError(
            f"{len(wrong)} labels are no {known}, the first is {wrong[0]:g}: check the datalist"
        )
    if not ((values >= 0).all() and np.allclose(values.sum(1), 1, atol=_SUM_TOLERANCE)):
        raise ValueError(
            "the probabilities of an image must be >= 0 and sum to 1: give the softmax of the logits"
        )
    known = truth != UNKNOWN
    return truth[known].astype(np.int64), values[known]


def _of_class(matrix: NDArray, number: int, is_own: NDArray, scores: NDArray) -> dict[str, float]:
    """Metrics of one class against the others."""
    hits, own, given = matrix[number, number], matrix[number].sum(), matrix[:, number].sum()
    return {
        "auc": roc_auc(is_own, scores) if len(is_own) else NAN,
        "sensitivity": _ratio(hits, own),
        "precision": _ratio(hits, given),
        "f1": _ratio(2 * hits, own + given),
        "num_images": int(own),
        "num_predicted": int(given),
    }


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else NAN
