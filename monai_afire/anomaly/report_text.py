# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The figures of an evaluation as a person reads them at the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["report_lines"]


def report_lines(metrics: Mapping[str, Any]) -> list[str]:
    """
    Tables of the figures of :func:`monai_afire.anomaly.evaluate_scores`.

    Example:
        >>> for line in report_lines({"images": {"normal": 1, "abnormal": 2}}):
        ...     print(line)
        1 normal and 2 abnormal images
    """
    lines = ["{normal} normal and {abnormal} abnormal images".format(**metrics["images"])]
    if "detection" in metrics:
        lines += ["", "score                AUC (95 % interval)     AP    ACC   F1    sens. spec."]
        for name, row in metrics["detection"].items():
            low, high = row["auc_interval"]
            keys = ("average_precision", "accuracy", "f1", "sensitivity", "specificity")
            rest = "  ".join(_number(row.get(key)) for key in keys)
            lines.append(f"{name:20} {_number(row['auc'])} ({_number(low)}-{_number(high)})    {rest}")
    if "within_view" in metrics:
        views = metrics["within_view"]
        lines += ["", "AUC within view      " + "  ".join(f"{view:>5}" for view in views)]
        for name in next(iter(views.values()))["auc"]:
            lines.append(f"{name:20} " + "  ".join(_number(view["auc"][name]) for view in views.values()))
    if "matched_pairs" in metrics:
        pairs = metrics["matched_pairs"]
        lines += ["", f"AUC on {pairs['pairs']} pairs matched for view and brightness"]
        for name, row in pairs.items():
            if name != "pairs":
                low, high = row["auc_interval"] or (None, None)
                lines.append(f"{name:20} {_number(row['auc'])} ({_number(low)}-{_number(high)})")
    if "localization" in metrics:
        lines += ["", "localisation         images  pixel AUROC  pointing  AUPRO"]
        lines += [_localization_line(name, row) for name, row in metrics["localization"].items()]
    if "controlled" in metrics:
        names = list(next(iter(metrics["controlled"].values()))["auc"])
        lines += ["", "AUC of the same normal images with against without a painted lesion"]
        lines.append(f"{'':40}" + "".join(f"{name[:18]:>20}" for name in names))
        for title, entry in metrics["controlled"].items():
            lines.append(f"{title:40}" + "".join(f"{_number(entry['auc'][name]):>20}" for name in names))
    return lines


def _localization_line(name: str, row: Mapping[str, Any]) -> str:
    figures = [_number(row.get(key)) for key in ("pixel_auroc", "pointing", "aupro")]
    return f"{name:20} {row['images']:6}  {figures[0]:11}  {figures[1]:8}  {figures[2]}"


def _number(value: float | None) -> str:
    return " n/a " if value is None else f"{value:.3f}"
