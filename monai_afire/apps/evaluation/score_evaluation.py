# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Evaluation of anomaly scores: metrics from a table with one row per image, beside baselines of exposure alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from monai_afire.apps.evaluation.matched_pairs import matched_pairs
from monai_afire.apps.evaluation.metrics import PROPERTIES, group_rows, subgroup_metrics
from monai_afire.apps.evaluation.patient_bootstrap import (
    patient_weights,
    weighted_metrics,
    with_intervals,
)
from monai_afire.metrics.binary_classification import checked_labels, roc_auc
from monai_afire.utils.formatting import json_safe

# scores that know nothing of lesions, see DescribeRadiographd: column and the sign that is abnormal
EXPOSURE_BASELINES = {"darkness": ("brightness", -1.0), "sharpness": ("sharpness", 1.0)}
CALIPER = 0.02  # largest difference of brightness within a pair, in units of [0, 1]


def evaluate_scores(
    table: pd.DataFrame,
    score_names: Sequence[str],
    thresholds: Mapping[str, float] | None = None,
    num_bootstraps: int = 1000,
) -> dict[str, Any]:
    """
    Metrics of each score, as far as the table allows them.

    * "detection": AUC, average precision, and accuracy, F1, sensitivity and specificity at the stored threshold, each
      with its 95 % interval over patients ("patient_id", of which "num_patients" are there; else over images); beside
      the scores the exposure baselines, which know nothing of lesions.
    * "within_view": AUC among the images of one view.
    * "subgroups": of the last score, where the table has "sex", see ``subgroup_metrics``.
    * "matched_pairs": AUC on pairs of an abnormal and a normal image of the same view and brightness, with its interval
      over pairs.
    * "localization": mean over the abnormal images of the columns "pixel_auroc_<name>" and "pointing_<name>".
    * "controlled": AUC of the same normal images with against without a painted lesion, by kind, contrast and size.

    Args:
        table: one row per image with "label" (0 or 1), a column for each score, and as far as known "view",
            "brightness", "sharpness", the localization columns, and for painted lesions "image", "kind" ("" for
            original images), "contrast" and "size".
        score_names: columns of the scores.
        thresholds: stored threshold of each score.
        num_bootstraps: samples of each interval.

    Returns:
        Nested dictionaries of numbers; a metric that is not defined is None.

    Example:
        >>> table = pd.DataFrame({"label": [0, 0, 1, 1], "fused": [0.1, 0.4, 0.35, 0.8]})
        >>> metrics = evaluate_scores(table, ["fused"], {"fused": 0.3}, num_bootstraps=10)
        >>> metrics["detection"]["fused"]["auc"], metrics["detection"]["fused"]["sensitivity"]
        (0.75, 1.0)
    """
    table = _with_texts(table)
    original = table[table["kind"] == ""] if "kind" in table else table
    labels = original["label"].to_numpy()
    result: dict[str, Any] = {"images": _counts(labels)}
    if len(set(labels)) == 2:
        result |= _discrimination(original, score_names, thresholds or {}, num_bootstraps)
    result["localization"] = _localization(original)
    if len(original) < len(table):
        result["controlled"] = _controlled(table, score_names, original)
    return json_safe({name: value for name, value in result.items() if value})


def _with_texts(table: pd.DataFrame) -> pd.DataFrame:
    """The table with "" where a CSV file that was read back has NaN for it."""
    names = [name for name in ("kind", *PROPERTIES) if name in table]
    texts = {name: table[name].astype(object).fillna("").astype(str) for name in names}
    return table.assign(**texts)


def _counts(labels: NDArray) -> dict[str, int]:
    return {"normal": int((labels == 0).sum()), "abnormal": int((labels == 1).sum())}


def _discrimination(
    images: pd.DataFrame,
    score_names: Sequence[str],
    thresholds: Mapping[str, float],
    num_bootstraps: int,
) -> dict[str, Any]:
    """How well scores tell abnormal images from normal ones, which all are among the images."""
    labels, columns = images["label"].to_numpy(), _score_columns(images, score_names)
    patients = images["patient_id"] if "patient_id" in images else pd.Series(range(len(images)))
    weights = patient_weights(patients, num_bootstraps, include_original=True)
    result: dict[str, Any] = {
        "detection": {
            name: _detection(weights, labels, scores, thresholds.get(name))
            for name, scores in columns.items()
        }
    }
    if "patient_id" in images:
        result["num_patients"] = patients.nunique(dropna=False)
    if "sex" in images:
        name = score_names[-1]
        values, limits = images[[name]].to_numpy(), [thresholds.get(name, np.nan)]
        result["subgroups"] = subgroup_metrics(
            images, labels[:, None], values, limits, ["abnormal"], num_bootstraps
        )
    if "view" in images:
        result["within_view"] = _within_view(labels, group_rows(images, "view"), columns)
    if _is_known(images, "brightness"):
        views = images.get("view", pd.Series("", images.index)).to_numpy()
        pairs = matched_pairs(labels, images["brightness"].to_numpy(), views, CALIPER)
        result["matched_pairs"] = _matched(pairs, columns, num_bootstraps)
    return result


def _score_columns(images: pd.DataFrame, score_names: Sequence[str]) -> dict[str, NDArray]:
    """The scores by name, and the exposure baselines that the table allows."""
    columns = {name: images[name].to_numpy() for name in score_names}
    for name, (column, sign) in EXPOSURE_BASELINES.items():
        if _is_known(images, column):
            columns[name] = sign * images[column].to_numpy()
    return columns


def _is_known(images: pd.DataFrame, column: str) -> bool:
    """Whether the table has a property of every image."""
    return column in images and bool(images[column].notna().all())


def _detection(
    weights: NDArray, labels: NDArray, scores: NDArray, threshold: float | None
) -> dict[str, Any]:
    """Metrics of one score with their intervals."""
    truth, values = checked_labels(labels, scores)
    if threshold is None:
        measured = weighted_metrics(weights, truth, values)[["auc", "average_precision"]]
        return with_intervals(measured)
    measured = weighted_metrics(weights, truth, values, threshold)
    return {"threshold": threshold, **with_intervals(measured)}


def _within_view(
    labels: NDArray, views: Mapping[str, NDArray], columns: Mapping[str, NDArray]
) -> dict[str, Any]:
    """AUC among the images of each view that has both kinds."""
    result: dict[str, Any] = {}
    for view, rows in views.items():
        counts = _counts(labels[rows])
        if view and all(counts.values()):
            aucs = {name: roc_auc(labels[rows], scores[rows]) for name, scores in columns.items()}
            result[view] = {"images": counts, "auc": aucs}
    return result


def _matched(pairs: NDArray, columns: Mapping[str, NDArray], num_bootstraps: int) -> dict[str, Any]:
    """AUC on matched pairs, with an interval over samples of the pairs."""
    weights = patient_weights(np.arange(len(pairs)), num_bootstraps, include_original=True)
    result: dict[str, Any] = {"pairs": len(pairs)}
    for name, scores in columns.items():
        abnormal, normal = scores[pairs.T]
        wins = (abnormal > normal) + 0.5 * (abnormal == normal)
        with np.errstate(invalid="ignore"):  # no pair
            aucs = weights @ wins / weights.sum(1)
        result[name] = with_intervals(pd.DataFrame({"auc": aucs}))
    return result


def _localization(rows: pd.DataFrame) -> dict[str, Any]:
    """Means of the columns that say how well a map points at the lesions."""
    result: dict[str, Any] = {}
    for metric in ("pixel_auroc", "pointing"):
        for column in rows.filter(regex=f"^{metric}_").dropna(axis="columns", how="all"):
            values = rows[column].dropna()
            entry = result.setdefault(column.removeprefix(f"{metric}_"), {"images": len(values)})
            entry[metric] = float(values.mean())
    return result


def _controlled(
    table: pd.DataFrame, score_names: Sequence[str], original: pd.DataFrame
) -> dict[str, Any]:
    """The painted copies against the same originals."""
    result: dict[str, Any] = {}
    painted = table[table["kind"] != ""]
    for (kind, contrast, size), copies in painted.groupby(["kind", "contrast", "size"]):
        before = original[original["image"].isin(copies["image"])]
        labels = np.repeat([0, 1], [len(before), len(copies)])
        result[f"{kind}, contrast {contrast:g}, size {size:g}"] = {
            **{"kind": kind, "contrast": contrast, "size": size, "images": len(copies)},
            "auc": {
                name: roc_auc(labels, pd.concat([before[name], copies[name]]))
                for name in score_names
            },
            "localization": _localization(copies),
        }
    return result
