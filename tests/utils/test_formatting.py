# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from monai_afire.utils.formatting import format_number, json_safe, table_lines


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.inf, None),
        (np.float32("nan"), None),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (torch.tensor(2.0), 2.0),
        (torch.tensor([[1.0, math.nan]]), [[1.0, None]]),
        ({1: (np.array([0.5, -math.inf]), "text", None)}, {"1": [[0.5, None], "text", None]}),
    ],
)
def test_values_survive_strict_json(value: Any, expected: Any) -> None:
    safe = json_safe(value)
    assert safe == expected
    assert type(safe) is type(expected)
    assert json.loads(json.dumps(safe, allow_nan=False)) == expected


def test_the_given_value_is_left_alone() -> None:
    value = {"figures": [math.nan]}
    assert json_safe(value) == {"figures": [None]}
    assert math.isnan(value["figures"][0])


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
