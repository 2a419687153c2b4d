# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numbers for JSON files, for messages and for tables at the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd


def json_safe(value: Any) -> Any:
    """Turn values into what JSON can hold."""
    if hasattr(value, "tolist"):  # arrays and tensors; a number if they have no dimension
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): json_safe(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_number(value: float | None, decimals: int = 3) -> str:
    """Text of a metric."""
    return f"{value:.{decimals}f}" if value is not None and math.isfinite(value) else "n/a"


def table_lines(rows: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Lines of a table for the terminal, a row per entry."""
    if not rows:
        return []
    cells = {
        name: {column: str(cell) for column, cell in row.items()} for name, row in rows.items()
    }
    table = pd.DataFrame.from_dict(cells, orient="index").fillna("")
    return [line.rstrip() for line in table.to_string().splitlines()]
