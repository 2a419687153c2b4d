# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numbers for JSON files, for messages and for tables at the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

__all__ = ["format_number", "json_safe", "table_lines"]


def json_safe(value: Any) -> Any:
    """
    Turn values into what JSON can hold: numbers of Python, lists, and None for NaN and infinity, which JSON lacks.

    Args:
        value: mappings, lists, tuples, arrays and tensors of any depth, and anything else, which stays as it is.

    Returns:
        New dictionaries (with text for keys) and lists.

    Example:
        >>> import numpy as np
        >>> json_safe({"auc": np.float32(0.5), "interval": (0.25, float("nan")), 1: np.arange(2)})
        {'auc': 0.5, 'interval': [0.25, None], '1': [0, 1]}
    """
    if hasattr(value, "tolist"):  # arrays and tensors; a number if they have no dimension
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): json_safe(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_number(value: float | None, decimals: int = 3) -> str:
    """
    Text of a metric.

    Args:
        value: the metric; None, NaN or infinite where it is not defined.
        decimals: digits behind the point.

    Returns:
        The number, "n/a" where it is not defined.

    Example:
        >>> format_number(0.98765), format_number(12.3, decimals=0), format_number(float("nan"))
        ('0.988', '12', 'n/a')
    """
    return f"{value:.{decimals}f}" if value is not None and math.isfinite(value) else "n/a"


def table_lines(rows: Mapping[str, Mapping[str, object]]) -> list[str]:
    """
    Lines of a table for the terminal, a row per entry.

    Args:
        rows: the cells of each row by column; a column that a row lacks is empty there.

    Returns:
        The header and a line per row, nothing without rows; names to the left, cells to the right of their columns.

    Example:
        >>> print(*table_lines({"Edema": {"images": 3, "AUC": "0.500"}, "Mass": {"images": 12}}), sep="\\n")
                  images    AUC
        Edema      3  0.500
        Mass      12
    """
    if not rows:
        return []
    cells = {name: {column: str(cell) for column, cell in row.items()} for name, row in rows.items()}
    table = pd.DataFrame.from_dict(cells, orient="index").fillna("")
    return [line.rstrip() for line in table.to_string().splitlines()]
