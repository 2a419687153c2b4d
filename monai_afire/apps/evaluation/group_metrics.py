# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of a decision within groups of patients, with what is not known about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.evaluation.patient_bootstrap import patient_weights, weighted_metrics

PROPERTIES = ("sex", "age", "view", "manufacturer")
UNKNOWN_GROUP = "unknown"
FEWEST_IMAGES = 10  # with, and without a finding, below which a group's metrics say nothing
GROUP_METRICS = ("auc", "sensitivity", "specificity")
_AGE_LIMITS = (0, 20, 40, 60, 80, np.inf)
_AGE_BANDS = ("0 to 19", "20 to 39", "40 to 59", "60 to 79", "80 or more")


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

    Example:
        >>> table = pd.DataFrame({"sex": ["F"] * 20 + ["M"] * 10 + [""]})
        >>> labels = np.array([[0.0], [1.0]] * 15 + [[1.0]])
        >>> found = subgroup_metrics(table, labels, labels, [0.5], ["Edema"], num_bootstraps=0)
        >>> found["sex"]["F"]["auc"], found["sex"]["M"]["auc"], found["sex"]["unknown"], found["view"]
        (1.0, nan, {'images': 1}, {'unknown': {'images': 31}})
    """
    result: dict[str, Any] = {}
    limits, truth = np.asarray(thresholds, dtype=float), np.asarray(labels, dtype=float)
    decisions = np.where(np.isnan(limits), np.nan, scores >= limits)
    patients = table.get("patient_id", pd.Series(table.index)).to_numpy()
    for name in PROPERTIES:
        groups = group_rows(table, name)
        unknown = groups.pop("", ())
        result[name] = {}
        for group, rows in groups.items():
            weights = patient_weights(patients[rows], num_bootstraps, include_original=True)
            measured = _metrics(weights, truth[rows], scores[rows], decisions[rows], class_names)
            result[name][group] = {"images": len(rows), **measured}
        if len(unknown):
            result[name][UNKNOWN_GROUP] = {"images": len(unknown)}
    return result


def group_rows(table: pd.DataFrame, name: str) -> dict[str, NDArray[np.intp]]:
    """
    Numbers of the images in each group of a property.

    Args:
        table: a row per image with the property as text, "" for unknown, as is a column that is not there.
        name: of the property; "age" is in years, its groups are bands.

    Returns:
        Group -> numbers, sorted; the group "" has the images of which it is not known.

    Example:
        >>> group_rows(pd.DataFrame({"age": ["57", "", "44"]}), "age")
        {'': array([1]), '40 to 59': array([0, 2])}
    """
    values = table.get(name, pd.Series("", table.index))
    groups = age_bands(values) if name == "age" else values
    return dict(groups.groupby(groups.to_numpy()).indices)


def age_bands(ages: pd.Series) -> pd.Series:
    """Years as text -> "40 to 59", "" for unknown."""
    bands = pd.cut(
        pd.to_numeric(ages, errors="coerce"), _AGE_LIMITS, right=False, labels=_AGE_BANDS
    )
    return bands.astype(object).fillna("")


def _metrics(
    weights: NDArray,
    labels: NDArray,
    scores: NDArray,
    decisions: NDArray,
    class_names: Sequence[str],
) -> dict[str, Any]:
    """Of one group, in the first set of weights as it is."""
    per_class, defined = {}, []
    for name, truth, values, decided in zip(
        class_names, labels.T, scores.T, decisions.T, strict=True
    ):
        known = ~np.isnan(truth)
        counts = {"num_positive": int((truth == 1).sum()), "num_negative": int((truth == 0).sum())}
        measured = np.full((len(weights), len(GROUP_METRICS)), np.nan)
        if min(counts.values()) >= FEWEST_IMAGES:
            measured = weighted_metrics(
                weights[:, known], truth[known], values[known], decided[known]
            )
            defined.append(measured)
        per_class[name] = {**_with_intervals(measured), **counts}
    means = np.mean(defined, axis=0) if defined else np.full((1, len(GROUP_METRICS)), np.nan)
    return {"num_classes": len(defined), **_with_intervals(means), "per_class": per_class}


def _with_intervals(measured: NDArray) -> dict[str, Any]:
    """The first row as it is, the others as percentiles of samples."""
    entry: dict[str, Any] = dict(zip(GROUP_METRICS, measured[0].tolist(), strict=True))
    if len(measured) > 1:
        # leaves NaN out
        limits = pd.DataFrame(measured[1:]).quantile([0.025, 0.975]).to_numpy().T.tolist()
        entry |= {
            f"{name}_interval": pair for name, pair in zip(GROUP_METRICS, limits, strict=True)
        }
    return entry
