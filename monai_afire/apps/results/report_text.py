# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics at the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from monai_afire.apps.evaluation.patient_bootstrap import LEAST_PATIENTS
from monai_afire.utils.text import counted


def format_number(value: float | None, decimals: int = 3) -> str:
    """Text of a metric."""
    return f"{value:.{decimals}f}" if value is not None and math.isfinite(value) else "n/a"


def metrics_lines(metrics: Mapping[str, Any]) -> list[str]:
    """
    Metrics by their names in ``metrics.json``: the numbers, then a table for each part of them.

    Example:
        >>> classes = {"Edema": {"auc": 0.9, "num_positive": 7}, "Fracture": {"auc": None, "num_positive": 0}}
        >>> for line in metrics_lines({"mean_auc": 0.9, "mean_auc_interval": [0.8, 1.0], "per_class": classes}):
        ...     print(line)
        mean_auc 0.900 (0.800-1.000)
        <BLANKLINE>
        per_class:
                    auc num_positive
        Edema     0.900            7
        Fracture    n/a            0
    """
    lines = [_joined(metrics)]
    parts = {title: part for title, part in metrics.items() if isinstance(part, Mapping)}
    for title, part in parts.items():
        numbers, rows = _joined(part), _rows(part)
        if numbers or rows:
            lines += ["", f"{title}: {numbers}".rstrip()]
        if rows:
            table = pd.DataFrame.from_dict(rows, orient="index").fillna("").to_string()
            lines += [line.rstrip() for line in table.splitlines()]
    number = metrics.get("num_patients", LEAST_PATIENTS)
    if number < LEAST_PATIENTS:
        found = f"{counted(number, 'patient')}: intervals over fewer than {LEAST_PATIENTS}"
        lines += ["", f"{found} are too narrow"]
    return lines


def _rows(part: Mapping[str, Any], name: str = "") -> dict[str, dict[str, str]]:
    """
    A row for each dictionary with numbers within another one, named by its keys.

    Not of the classes of a group, nor of a property that is known of no image.
    """
    rows: dict[str, dict[str, str]] = {}
    for key, value in part.items():
        if isinstance(value, Mapping) and key != "per_class" and value.keys() != {"unknown"}:
            row = f"{name} {key}".strip()
            rows |= {row: cells} if (cells := _cells(value)) else {}
            rows |= _rows(value, row)
    return rows


def _cells(entry: Mapping[str, Any]) -> dict[str, str]:
    """Numbers as text, with their intervals."""
    cells = {}
    for name, value in entry.items():
        if value is None or isinstance(value, (int, float)):
            interval = "-".join(map(format_number, entry.get(f"{name}_interval", ())))
            number = str(value) if isinstance(value, int) else format_number(value)
            cells[name] = f"{number} ({interval})" if interval else number
    return cells


def _joined(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {text}" for name, text in _cells(entry).items())
