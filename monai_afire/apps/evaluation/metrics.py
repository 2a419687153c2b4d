# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of decisions: of findings (an image may have several), of exclusive classes, and in groups of patients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.evaluation.patient_bootstrap import (
    INTERVAL,
    bootstrap_aucs,
    patient_weights,
    weighted_metrics,
    with_intervals,
)
from monai_afire.metrics.binary_classification import NAN, mean_of_defined
from monai_afire.metrics.multilabel import (
    DEFAULT_THRESHOLD,
    as_array,
    check_class_names,
    checked_pairs,
)

UNKNOWN = -1  # number of a class that is not known
PROPERTIES = ("sex", "age", "view", "manufacturer")
FEWEST_IMAGES = 10  # with, and without a finding, below which a group's metrics say nothing
GROUP_METRICS = ("auc", "sensitivity", "specificity")
_AGE_LIMITS = (0, 20, 40, 60, 80, np.inf)
_AGE_BANDS = ("0 to 19", "20 to 39", "40 to 59", "60 to 79", "80 or more")


def classification_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    class_names: Sequence[str],
    thresholds: ArrayLike | None = None,
    uncertain: str = "ignore",
    num_bootstraps: int = 0,
    patients: ArrayLike | None = None,
) -> dict[str, Any]:
    """
    Metrics of each finding and their means.

    Args:
        labels: ``(M, K)`` of 1, 0, -1 (uncertain) and NaN (not known); ``(M,)`` is one finding.
        probabilities: of the same shape, in [0, 1].
        class_names: K names.
        thresholds: ``(K,)`` in [0, 1]: a finding is called present when its probability is >= its threshold, which was
            found on other images than these; NaN leaves a finding without decision. None: 0.5 for all.
        uncertain: what -1 counts as, see ``resolve_uncertain``.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.
        patients: ``(M,)``, the patient of each image; None for as many patients as images.

    Returns:
        "num_images"; "mean_auc", "mean_average_precision" and "mean_f1" over the findings that define the metric; with
        ``num_bootstraps`` "mean_auc_interval", 95 % over samples of patients with all findings of their images, so that
        these stay as dependent as they are; "per_class" with ``METRICS``, which are NaN where all known labels are the
        same, "threshold", "num_positive" and "num_negative" of each finding.

    Raises:
        ValueError: for shapes that do not fit, other labels, NaN probabilities or ones out of range.

    Example:
        >>> metrics = classification_metrics(
        ...     [[1, 0], [0, None], [1, 0]], [[0.8, 0.1], [0.3, 0.9], [0.4, 0.2]], ["Edema", "Fracture"]
        ... )
        >>> metrics["mean_auc"], metrics["per_class"]["Edema"]["sensitivity"], metrics["per_class"]["Fracture"]["auc"]
        (1.0, 0.5, nan)
    """
    truth, values = checked_pairs(labels, probabilities, uncertain)
    check_class_names(class_names, truth.shape[1])
    if values.size and not 0 <= values.min() <= values.max() <= 1:
        found = f"probabilities are from {values.min():g} to {values.max():g}, not in [0, 1]"
        raise ValueError(f"{found}: apply a sigmoid")
    limits = checked_thresholds(thresholds, truth.shape[1])
    if limits is None:
        limits = np.full(truth.shape[1], DEFAULT_THRESHOLD)
    once = np.ones((1, len(truth)))
    per_class = {}
    for name, known, scores, limit in zip(class_names, truth.T, values.T, limits, strict=True):
        measured, counts = _of_finding(once, known, scores, limit, fewest_images=1)
        per_class[name] = {**with_intervals(measured), "threshold": float(limit), **counts}
    metrics: dict[str, Any] = {"num_images": len(truth)}
    for name in ("auc", "average_precision", "f1"):
        metrics[f"mean_{name}"] = mean_of_defined([entry[name] for entry in per_class.values()])
    if num_bootstraps:
        metrics["mean_auc_interval"] = _mean_auc_interval(truth, values, num_bootstraps, patients)
    return {**metrics, "per_class": per_class}


def checked_thresholds(
    thresholds: ArrayLike | None, num_classes: int
) -> NDArray[np.float64] | None:
    """Thresholds as a vector, one per class, each in [0, 1] or NaN; None stays None."""
    if thresholds is None:
        return None
    values = as_array(thresholds)
    if values.shape != (num_classes,) or ((values < 0) | (values > 1)).any():
        wanted = f"{num_classes} numbers in [0, 1]: give one per class"
        raise ValueError(f"thresholds {values.tolist()} are not {wanted}")
    return values


def _of_finding(
    weights: NDArray, labels: NDArray, scores: NDArray, threshold: float, fewest_images: int
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Metrics on the images whose label is known, NaN with fewer of either label, and how many there are of each."""
    known = ~np.isnan(labels)
    counts = {"num_positive": int((labels == 1).sum()), "num_negative": int((labels == 0).sum())}
    measured = weighted_metrics(weights[:, known], labels[known], scores[known], threshold)
    return measured if min(counts.values()) >= fewest_images else measured * NAN, counts


def _mean_auc_interval(
    truth: NDArray, values: NDArray, num_bootstraps: int, patients: ArrayLike | None
) -> tuple[float, float]:
    """95 % interval over samples of patients, without which each image is one."""
    drawn = np.arange(len(truth)) if patients is None else patients
    aucs = bootstrap_aucs(truth, values, patient_weights(drawn, num_bootstraps))
    low, high = pd.Series(aucs).quantile(INTERVAL)
    return float(low), float(high)


def multiclass_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    class_names: Sequence[str],
    num_bootstraps: int = 0,
    patients: ArrayLike | None = None,
) -> dict[str, Any]:
    """
    Metrics of exclusive classes (grades, diagnoses): of the most probable one, and of the probabilities.

    Args:
        labels: ``(M,)``, the number of each image's class from 0 to K - 1, or -1 where it is not known: such images
            are left out.
        probabilities: ``(M, K)``, of which each row sums to 1.
        class_names: K names, K > 1; of grades in their order, which the kappa needs.
        num_bootstraps: samples of the interval of the mean AUC, 0 for none.
        patients: ``(M,)``, the patient of each image; None for as many patients as images.

    Returns:
        "num_images" whose class is known; "mean_auc" of each class against the others, over the classes that occur but
        not alone, and its 95 % "mean_auc_interval" over samples of patients; "accuracy"; "balanced_accuracy", the mean
        sensitivity of the classes that occur; "quadratic_weighted_kappa" of ordered grades (Cohen 1968), NaN when truth
        and decisions are one and the same class throughout; :func:`expected_calibration_error`; "confusion_matrix", K
        lists with the true classes in the rows; "per_class" with "auc", "sensitivity", "precision", "f1", "num_images"
        and "num_predicted". All are NaN when no class is known.

    Raises:
        ValueError: for labels out of range, names that are not K, probabilities that do not sum to 1.

    Example:
        >>> probabilities = [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]
        >>> metrics = multiclass_metrics([0, 1, 2, 2], probabilities, ["none", "mild", "severe"])
        >>> metrics["accuracy"], round(metrics["quadratic_weighted_kappa"], 3), metrics["confusion_matrix"]
        (0.75, 0.8, [[1, 0, 0], [0, 1, 0], [0, 1, 1]])
    """
    from sklearn.metrics import cohen_kappa_score, confusion_matrix  # takes a second to import

    _check_exclusive(np.asarray(labels), np.asarray(probabilities), class_names)
    known = np.asarray(labels) != UNKNOWN
    truth, values = np.asarray(labels)[known].astype(int), np.asarray(probabilities, float)[known]
    numbers, decided = np.arange(len(class_names)), values.argmax(1)
    one_hot = (truth[:, None] == numbers).astype(float)
    matrix, kappa = np.zeros((len(numbers), len(numbers)), dtype=int), NAN
    if len(truth):
        matrix = confusion_matrix(truth, decided, labels=numbers)
    if len({*truth, *decided}) > 1:
        kappa = float(cohen_kappa_score(truth, decided, labels=numbers, weights="quadratic"))
    per_class = _per_exclusive_class(matrix, one_hot, values, class_names)
    mean_auc = float(per_class["auc"].mean())
    metrics: dict[str, Any] = {"num_images": len(truth), "mean_auc": mean_auc}
    if num_bootstraps:
        own = None if patients is None else np.asarray(patients)[known]
        metrics["mean_auc_interval"] = _mean_auc_interval(one_hot, values, num_bootstraps, own)
    return {
        **metrics,
        "accuracy": float((truth == decided).mean()) if len(truth) else NAN,
        "balanced_accuracy": float(per_class["sensitivity"].mean()),
        "quadratic_weighted_kappa": kappa,
        "expected_calibration_error": expected_calibration_error(decided == truth, values.max(1)),
        "confusion_matrix": matrix.tolist(),
        "per_class": per_class.to_dict("index"),
    }


def _check_exclusive(truth: NDArray, values: NDArray, class_names: Sequence[str]) -> None:
    """Refuse labels and probabilities that are none of exclusive classes."""
    check_class_names(class_names, values.shape[1])
    if wrong := set(truth.tolist()) - set(range(UNKNOWN, len(class_names))):
        known = f"numbers from 0 to {len(class_names) - 1} (or -1, unknown)"
        raise ValueError(f"labels {wrong} are no {known}: check the datalist")
    if not ((values >= 0).all() and np.allclose(values.sum(1), 1, atol=1e-4)):
        raise ValueError("probabilities must be >= 0 and sum to 1: give the softmax of the logits")


def _per_exclusive_class(
    matrix: NDArray, one_hot: NDArray, probabilities: NDArray, class_names: Sequence[str]
) -> pd.DataFrame:
    """Metrics of each class against the others, a row per class."""
    hits, own, given = np.diag(matrix), matrix.sum(1), matrix.sum(0)
    once = np.ones((1, len(one_hot)))
    pairs = zip(one_hot.T, probabilities.T, strict=True)
    with np.errstate(invalid="ignore"):
        columns = {
            "auc": [weighted_metrics(once, is_own, scores)["auc"][0] for is_own, scores in pairs],
            "sensitivity": hits / own,
            "precision": hits / given,
            "f1": 2 * hits / (own + given),
            "num_images": own,
            "num_predicted": given,
        }
    return pd.DataFrame(columns, index=[*class_names])


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
    """
    right, values = np.asarray(correct, dtype=float), np.asarray(confidence, dtype=float)
    if not values.size:
        return NAN
    bins = np.clip(np.ceil(values * num_bins) - 1, 0, num_bins - 1).astype(int)
    gaps = np.bincount(bins, weights=right - values)
    return float(np.abs(gaps).sum() / values.size)


def subgroup_metrics(
    table: pd.DataFrame,
    labels: NDArray,
    scores: NDArray,
    thresholds: ArrayLike,
    class_names: Sequence[str],
    num_bootstraps: int = 1000,
) -> dict[str, Any]:
    """
    AUC, sensitivity and specificity by sex, age band, view and manufacturer.

    Args:
        table: a row per image with the columns "patient_id", "sex", "age", "view" and "manufacturer" as text, ""
            for unknown; a column that is not there counts as unknown.
        labels: ``(M, K)`` of 1 and 0, NaN where it is not known.
        scores: ``(M, K)``, larger for 1.
        thresholds: ``(K,)``: a score that is not below it decides for 1; NaN for no decision.
        class_names: K names.
        num_bootstraps: samples of patients for the 95 % intervals, 0 for none.

    Returns:
        Property -> group -> "images", the means "auc", "sensitivity" and "specificity" over "num_classes" classes with
        their intervals ("auc_interval", ...), and "per_class" the same with "num_positive" and "num_negative". A class
        with fewer than 10 images of either kind in a group is NaN there, and not part of the means: groups of other
        classes are compared by "per_class". The group "unknown" has "images" alone.
    """
    result: dict[str, Any] = {}
    truth, limits = np.asarray(labels, dtype=float), np.asarray(thresholds, dtype=float)
    patients = table.get("patient_id", pd.Series(table.index)).to_numpy()
    for name in PROPERTIES:
        groups = group_rows(table, name)
        unknown = groups.pop("", ())
        result[name] = {}
        for group, rows in groups.items():
            weights = patient_weights(patients[rows], num_bootstraps, include_original=True)
            classes = zip(class_names, truth[rows].T, scores[rows].T, limits, strict=True)
            result[name][group] = {"images": len(rows), **_of_group(weights, classes)}
        if len(unknown):
            result[name]["unknown"] = {"images": len(unknown)}
    return result


def _of_group(
    weights: NDArray, classes: Iterable[tuple[str, NDArray, NDArray, float]]
) -> dict[str, Any]:
    """Metrics of each finding in one group, and their means over those that have enough images."""
    per_class, defined = {}, []
    for name, truth, values, limit in classes:
        measured, counts = _of_finding(weights, truth, values, limit, FEWEST_IMAGES)
        measured = measured[[*GROUP_METRICS]]
        per_class[name] = {**with_intervals(measured), **counts}
        if min(counts.values()) >= FEWEST_IMAGES:
            defined.append(measured)
    means = sum(defined) / len(defined) if defined else pd.DataFrame(NAN, [0], GROUP_METRICS)
    return {"num_classes": len(defined), **with_intervals(means), "per_class": per_class}


def group_rows(table: pd.DataFrame, name: str) -> dict[str, NDArray[np.intp]]:
    """
    Numbers of the images in each group of a property of a table, "" for those of which it is not known.

    Groups of "age", in years, are bands.
    """
    groups = table.get(name, pd.Series("", table.index))
    if name == "age":
        years = pd.to_numeric(groups, errors="coerce")
        bands = pd.cut(years, _AGE_LIMITS, right=False, labels=_AGE_BANDS)
        groups = bands.astype(object).fillna("")
    return dict(groups.groupby(groups.to_numpy()).indices)
