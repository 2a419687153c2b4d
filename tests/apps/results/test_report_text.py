# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numbers and tables at the terminal."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monai_afire.apps.results.report_text import format_number, table_lines


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.0005, 3, "0.001"),
        (99.95, 1, "100.0"),
        (None, 3, "n/a"),
        (math.inf, 3, "n/a"),
        (np.float32(0.5), 2, "0.50"),
    ],
)
def test_numbers(value: float | None, decimals: int, text: str) -> None:
    assert format_number(value, decimals) == text


def test_columns_of_a_table_are_aligned_and_nothing_is_cut() -> None:
    names = ["a", "Enlarged Cardiomediastinum" * 5]
    header, *lines = table_lines(
        {name: {"AUC": "0.5", **{f"column {n}": "1" for n in range(40)}} for name in names}
    )
    assert len({len(line) for line in (header, *lines)}) == 1
    assert [line.split("  ")[0] for line in lines] == names
    assert header.rstrip().endswith("column 39")


def test_cells_that_a_row_lacks_are_empty() -> None:
    assert [line.split() for line in table_lines({"a": {"x": "1"}, "b": {"y": 2}})] == [
        ["x", "y"],
        ["a", "1"],
        ["b", "2"],
    ]


def test_a_table_without_rows_has_no_lines() -> None:
    assert table_lines({}) == []
