# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Evaluation of anomaly scores: metrics from a table with one row per image, beside baselines of exposure alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from monai_afire.apps.evaluation.binary_metrics import (
    average_precision,
    bootstrap_interval,
    metrics_at_threshold,
)
from monai_afire.apps.evaluation.group_metrics import PROPERTIES, subgroup_metrics
from monai_afire.apps.evaluation.matched_pairs import matched_pair_auc, matched_pairs
from monai_afire.metrics.binary_classification import roc_auc
from monai_afire.utils.formatting import json_safe

# scores that know nothing of lesions, see DescribeRadiographd: column and the sign that is abnormal
EXPOSURE_BASELINES = {"darkness": ("brightness", -1.0), "sharpness": ("sharpness", 1.0)}


CALIPER = 0.02  # largest difference of brightness within a pair, in units of [0, 1]


def evaluate_scores(
    table: pd.DataFrame,
    score_names: Sequence[str],
    thresholds: Mapping[str, float] | None = None,
    num_bootstraps: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """
    Metrics of each score, as far as the table allows them.

    * "detection": AUC, average precision, and accuracy, F1, sensitivity and specificity at the stored threshold, each
      with its bootstrap 95 % interval, by patient where the table has "patient_id"; beside the scores the exposure
      baselines, which know nothing of lesions.
    * "num_patients": where the table has "patient_id".
    * "within_view": AUC among the images of one view.
    * "subgroups": AUC, sensitivity and specificity of the last score by sex, age, view and manufacturer, where the
      table has "sex", see ``subgroup_metrics``.
    * "matched_pairs": AUC on pairs of an abnormal and a normal image of the same view and brightness.
    * "localization": mean over the abnormal images of the columns "pixel_auroc_<name>" and "pointing_<name>".
    * "controlled": AUC of the same normal images with against without a painted lesion, by kind, contrast and size.

    Args:
        table: one row per image with "label" (0 or 1), a column for each score, and as far as known "view",
            "brightness", "sharpness", the localization columns, and for painted lesions "image", "kind", "contrast" and
            "size". "kind" is "" (or missing, as in a CSV file that was read back) for original images, "view" where
            it is not known.
        score_names: columns of the scores.
        thresholds: stored threshold of each score.
        num_bootstraps: samples of each interval.
        seed: of the bootstrap.

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
        result |= _discrimination(original, score_names, thresholds or {}, num_bootstraps, seed)
    result["localization"] = _localization(original)
    if len(original) < len(table):
        result["controlled"] = _controlled(table, score_names, original)
    return json_safe({name: value for name, value in result.items() if value})


def _with_texts(table: pd.DataFrame) -> pd.DataFrame:
    """The table with "" where a CSV file that was read back has NaN for it."""
    names = [name for name in ("kind", *PROPERTIES) if name in table]
    return table.assign(
        **{name: table[name].astype(object).fillna("").astype(str) for name in names}
    )


def _discrimination(
    images: pd.DataFrame,
    score_names: Sequence[str],
    thresholds: Mapping[str, float],
    num_bootstraps: int,
    seed: int,
) -> dict[str, Any]:
    """How well scores tell abnormal images from normal ones, which all are among the images."""
    labels = images["label"].to_numpy()
    patients = images["patient_id"].to_numpy() if "patient_id" in images else None
    views = images["view"].to_numpy() if "view" in images else None
    columns = _score_columns(images, score_names)
    result: dict[str, Any] = {"detection": {}}
    if patients is not None:
        result["num_patients"] = len(set(patients.tolist()))
    for name, scores in columns.items():
        result["detection"][name] = _detection(
            labels, scores, thresholds.get(name), num_bootstraps, seed, patients
        )
    if "sex" in images:
        result["subgroups"] = _subgroups(images, score_names[-1], thresholds, num_bootstraps)
    if views is not None:
        result["within_view"] = _within_view(labels, views, columns)
    if _is_known(images, "brightness"):
        pairs = matched_pairs(labels, images["brightness"].to_numpy(), views, CALIPER)
        result["matched_pairs"] = _matched(pairs, columns, num_bootstraps, seed)
    return result


def _score_columns(images: pd.DataFrame, score_names: Sequence[str]) -> dict[str, np.ndarray]:
    """The scores by name, and the exposure baselines that the table allows."""
    columns = {name: images[name].to_numpy() for name in score_names}
    for name, (column, sign) in EXPOSURE_BASELINES.items():
        if _is_known(images, column):
            columns[name] = sign * images[column].to_numpy()
    return columns


def _is_known(images: pd.DataFrame, column: str) -> bool:
    """Whether the table has a property of every image."""
    return column in images and bool(images[column].notna().all())


def _subgroups(
    images: pd.DataFrame, score_name: str, thresholds: Mapping[str, float], num_bootstraps: int
) -> dict[str, Any]:
    """Metrics of one score by sex, age, view and manufacturer."""
    labels, scores = images[["label"]].to_numpy(), images[[score_name]].to_numpy()
    limits = [thresholds.get(score_name, np.nan)]
    return subgroup_metrics(images, labels, scores, limits, ["abnormal"], num_bootstraps)


def _counts(labels: np.ndarray) -> dict[str, int]:
    return {"normal": int((labels == 0).sum()), "abnormal": int((labels == 1).sum())}


def _detection(
    labels: np.ndarray,
    scores: np.ndarray,
    threshold: float | None,
    num_bootstraps: int,
    seed: int,
    patients: np.ndarray | None,
) -> dict[str, Any]:
    """Metrics of one score with their intervals."""

    def measured(y: np.ndarray, s: np.ndarray) -> dict[str, float]:
        ranked = {"auc": roc_auc(y, s), "average_precision": average_precision(y, s)}
        return ranked if threshold is None else {**ranked, **metrics_at_threshold(y, s, threshold)}

    values = measured(labels, scores)
    lower, upper = bootstrap_interval(
        lambda y, s: [*measured(y, s).values()],
        labels,
        scores,
        num_bootstraps,
        seed,
        patients=patients,
    )
    metrics: dict[str, Any] = {} if threshold is None else {"threshold": threshold}
    for (name, value), *interval in zip(values.items(), lower, upper, strict=True):
        metrics |= {name: value, f"{name}_interval": interval}
    return metrics


def _within_view(
    labels: np.ndarray, views: np.ndarray, columns: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """AUC among the images of each view that has both kinds."""
    result: dict[str, Any] = {}
    for view in sorted(set(views) - {""}):
        chosen = views == view
        counts = _counts(labels[chosen])
        if all(counts.values()):
            aucs = {
                name: roc_auc(labels[chosen], scores[chosen]) for name, scores in columns.items()
            }
            result[view] = {"images": counts, "auc": aucs}
    return result


def _matched(
    pairs: np.ndarray, columns: Mapping[str, np.ndarray], num_bootstraps: int, seed: int
) -> dict[str, Any]:
    """AUC on matched pairs, with an interval over samples of the pairs."""
    rng = np.random.default_rng(seed)
    samples = (
        [pairs[rng.integers(0, len(pairs), len(pairs))] for _ in range(num_bootstraps)]
        if len(pairs)
        else []
    )
    result: dict[str, Any] = {"pairs": len(pairs)}
    for name, scores in columns.items():
        resampled = [matched_pair_auc(scores, sample) for sample in samples]
        interval = np.quantile(resampled, [0.025, 0.975]).tolist() if resampled else None
        result[name] = {"auc": matched_pair_auc(scores, pairs), "auc_interval": interval}
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
