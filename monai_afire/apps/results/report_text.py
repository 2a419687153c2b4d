# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numbers and tables at the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd


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
