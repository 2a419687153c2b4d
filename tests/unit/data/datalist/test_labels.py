# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels that a network is fine-tuned and tested on, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from monai_afire.data import DatalistError, load_radiograph_datalist
from monai_afire.data.datalist.labels import check_label_table


def label_items(*labels: Any) -> list[dict[str, Any]]:
    return [{"image": f"{number}.png", "label": label} for number, label in enumerate(labels)]


def labels_of(items: list[dict[str, Any]]) -> list[Any]:
    return [item["label"] for item in items]


def test_labels_become_plain_numbers_and_items_are_new() -> None:
    items = label_items(
        [1.0, 0, -1, None], (0, 1, float("nan"), -1.0), np.float32([0, 1, np.nan, 0])
    )
    checked = check_label_table(items, 4, "test")
    assert labels_of(checked) == [[1, 0, -1, None], [0, 1, None, -1], [0, 1, None, 0]]
    assert items[0]["label"] == [1.0, 0, -1, None]
    assert labels_of(check_label_table(label_items(torch.tensor([1.0, 0.0])), 2, "test")) == [
        [1, 0]
    ]
    assert labels_of(check_label_table(label_items(0, 2.0, np.int64(1)), 3, "test")) == [0, 2, 1]
    assert labels_of(check_label_table(label_items(1, 0, -1), 1, "test")) == [1, 0, -1]
    assert check_label_table([], 3) == []


@pytest.mark.parametrize(
    ("label", "num_classes"),
    [([0, 2], 2), ([0.5, 1], 2), ([0, "1"], 2), ([0], 2), (2, 2), (-1, 2), (None, 2), (2, 1)],
)
def test_a_wrong_label_is_named_with_its_item(label: Any, num_classes: int) -> None:
    good = 0 if not isinstance(label, list) else [0] * num_classes
    with pytest.raises(DatalistError, match=r"1\.png"):
        check_label_table(label_items(good, label), num_classes, "test", "list")


@pytest.mark.parametrize(
    ("names", "labels", "is_named"),
    [
        (["Effusion", "No Finding"], [[0, 1], [1, 0]], True),
        ({"0": " Normal ", "1": "Effusion"}, [[0, 1], [1, 0]], True),
        (["normal", "pneumonia"], [0, 1], False),
        (["Effusion", "Nodule"], [[0, 1], [1, 0]], False),
    ],
)
def test_a_finding_that_means_none_is_named(
    tmp_path: Path,
    names: Any,
    labels: list[Any],
    is_named: bool,
    recwarn: pytest.WarningsRecorder,
) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"finding_names": names, "training": label_items(*labels)}))
    load_radiograph_datalist(datalist=path, check_files=False)
    assert any("finding_names" in str(warning.message) for warning in recwarn) == is_named


def test_lists_and_numbers_are_not_mixed() -> None:
    with pytest.raises(DatalistError, match=r"1\.png"):
        check_label_table(label_items(0, [0, 1]), 2)


@pytest.mark.parametrize(
    ("section", "labels", "names", "expected"),
    [
        ("training", ([1, 0, 1, -1], [1, -1, 0, None]), "abcd", ["b, d", "a, d"]),
        ("training", (0, 2, 0), "abc", ["b"]),
        ("validation", ([1, 0, -1], [0, 0, None]), "abc", ["b, c"]),
        ("validation", ([1, 1], [0, 1]), "ab", []),
        ("test", ([1, 1],), "ab", []),
    ],
)
def test_classes_that_cannot_be_learned_or_have_no_threshold_are_named(
    section: str,
    labels: tuple[Any, ...],
    names: str,
    expected: list[str],
    recwarn: pytest.WarningsRecorder,
) -> None:
    check_label_table(label_items(*labels), len(names), section, "list", list(names))
    assert [str(each.message).rpartition(": ")[2].rstrip(".") for each in recwarn] == expected


def test_exclusive_classes_are_numbers_or_unknown() -> None:
    items = label_items(0, 2.0, np.int64(1), -1)
    assert labels_of(check_label_table(items, 3, "test", label_kind="multiclass")) == [0, 2, 1, -1]
    for wrong in ([0, 1, 0], 3, None):
        with pytest.raises(DatalistError, match=r"1\.png"):
            check_label_table(label_items(0, wrong), 3, "test", label_kind="multiclass")
