# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Text of an anomaly evaluation: its metrics as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monai_afire.utils.formatting import format_number, table_lines

__all__ = ["report_lines"]

_DETECTION = {
    "average_precision": "AP",
    "accuracy": "ACC",
    "f1": "F1",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
}
_LOCALIZATION = {"pixel_auroc": "pixel AUROC", "pointing": "pointing", "aupro": "AUPRO"}


def report_lines(metrics: Mapping[str, Any]) -> list[str]:
    """
    Tables of the metrics of :func:`monai_afire.anomaly.evaluate_scores`.

    Example:
        >>> for line in report_lines({"images": {"normal": 1, "abnormal": 2}}):
        ...     print(line)
        1 normal and 2 abnormal images
    """
    lines = ["{normal} normal and {abnormal} abnormal images".format(**metrics["images"])]
    if "detection" in metrics:
        lines += ["", "scores, AUC with its 95 % interval"]
        lines += table_lines({name: _detection_cells(row) for name, row in metrics["detection"].items()})
    if "within_view" in metrics:
        views = metrics["within_view"]
        names = next(iter(views.values()))["auc"]
        rows = {name: _formatted({view: entry["auc"][name] for view, entry in views.items()}) for name in names}
        lines += ["", "AUC within view", *table_lines(rows)]
    if "matched_pairs" in metrics:
        pairs = metrics["matched_pairs"]
        scores = {name: _auc_cells(row) for name, row in pairs.items() if name != "pairs"}
        lines += ["", f"AUC on {pairs['pairs']} pairs matched for view and brightness", *table_lines(scores)]
    if "localization" in metrics:
        lines += ["", "localisation"]
        lines += table_lines({name: _localization_cells(row) for name, row in metrics["localization"].items()})
    if "controlled" in metrics:
        lines += ["", "AUC of the same normal images with against without a painted lesion"]
        lines += table_lines({title: _formatted(entry["auc"]) for title, entry in metrics["controlled"].items()})
    return lines


def _formatted(metrics: Mapping[str, float | None]) -> dict[str, str]:
    return {name: format_number(value) for name, value in metrics.items()}


def _auc_cells(row: Mapping[str, Any]) -> dict[str, str]:
    interval = "-".join(format_number(limit) for limit in row["auc_interval"] or (None, None))
    return {"AUC": format_number(row["auc"]), "interval": interval}


def _detection_cells(row: Mapping[str, Any]) -> dict[str, str]:
    return {**_auc_cells(row), **{title: format_number(row.get(key)) for key, title in _DETECTION.items()}}


def _localization_cells(row: Mapping[str, Any]) -> dict[str, object]:
    return {"images": row["images"], **{title: format_number(row.get(key)) for key, title in _LOCALIZATION.items()}}
