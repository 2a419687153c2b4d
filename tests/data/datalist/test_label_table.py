# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labels that a network is fine-tuned and tested on, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from monai_afire.data.datalist.datalist_checks import DatalistError
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
    ("label", "num_classes", "reason"),
    [
        ([0, 2], 2, "2 for class 1"),
        ([0.5, 1], 2, "0.5 for class 0"),
        ([0, "1"], 2, "'1' for class 1"),
        ([0, True], 2, "True for class 1"),
        ([float("inf"), 0], 2, "inf for class 0"),
        ([0], 2, r"1 values \[0\]"),
        ([], 1, r"0 values \[\]"),
        ([[0, 1]], 1, r"\[0, 1\] for class 0"),
        (2, 2, "class 2"),
        (-1, 2, "class -1"),
        (1.5, 2, "1.5 for the class"),
        ("1", 2, "'1' for the class"),
        (None, 2, "no label"),
        (None, 1, "no label"),
        (float("nan"), 1, "nan for the class"),
        (2, 1, "2 for the class"),
    ],
)
def test_wrong_label_is_named_with_item_and_value(
    label: Any, num_classes: int, reason: str
) -> None:
    good = 0 if not isinstance(label, list) else [0] * num_classes
    with pytest.raises(
        DatalistError,
        match=rf"list: section 'test' has 1 wrong label: item 1 \(1\.png\): {reason}; ",
    ):
        check_label_table(label_items(good, label), num_classes, "test", "list")


def test_many_wrong_labels_are_counted_and_named_by_class() -> None:
    with pytest.raises(DatalistError) as caught:
        check_label_table(label_items(*([3] for _ in range(8))), 1, names=["edema"])
    assert "has 8 wrong labels: item 0 (0.png): 3 for edema, item 1" in str(caught.value)
    assert "and 3 more; accepted are 1 (present), 0 (absent), -1 (uncertain)" in str(caught.value)
    with pytest.raises(DatalistError, match=r"item 0: no label"):
        check_label_table([{}], 2)


def test_lists_and_numbers_are_not_mixed() -> None:
    with pytest.raises(
        DatalistError,
        match=r"mixes lists of labels \(item 1 \(1.png\)\) and class numbers \(item 0",
    ):
        check_label_table(label_items(0, [0, 1]), 2)


def test_names_must_be_as_many_as_classes() -> None:
    with pytest.raises(ValueError, match="number of names"):
        check_label_table([], 2, names=["a"])
    with pytest.raises(ValueError, match="at least 1"):
        check_label_table([], 0)


def test_training_warns_of_classes_that_cannot_be_learned() -> None:
    items = label_items([1, 0, 1, -1], [1, -1, 0, None])
    with pytest.warns(UserWarning, match="which cannot be learned") as caught:
        check_label_table(items, 4, "training", "list", ["a", "b", "c", "d"])
    positives, negatives = (str(warning.message) for warning in caught)
    assert (
        positives
        == "list: section 'training' has no positives of 2 of 4 classes, which cannot be learned: b, d."
    )
    assert (
        negatives
        == "list: section 'training' has no negatives of 2 of 4 classes, which cannot be learned: a, d."
    )


def test_training_warns_of_class_numbers_that_are_absent() -> None:
    with pytest.warns(
        UserWarning, match="no positives of 1 of 3 classes, which cannot be learned: class 1"
    ):
        check_label_table(label_items(0, 2, 0), 3)
    with pytest.warns(UserWarning, match="no negatives of 1 of 1 classes"):
        check_label_table(label_items(1, 1), 1)


def test_validation_without_any_auc_says_so() -> None:
    for items, num_classes in (
        (label_items([1, 0], [1, 0]), 2),
        (label_items(2, 2), 3),
        (label_items(0, 0), 1),
    ):
        with pytest.warns(UserWarning, match="its mean AUC is nan"):
            check_label_table(items, num_classes, "validation")


def test_nothing_to_warn_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_label_table(label_items([1, 0], [0, 1]), 2)
        check_label_table(label_items(0, 1, 2), 3)
        check_label_table(label_items(0, 1), 1)
        check_label_table(label_items([1, 1]), 2, "test")
        check_label_table(label_items([1, 1], [0, 1]), 2, "validation")
        check_label_table([], 2)


def test_exclusive_classes_are_numbers_or_unknown() -> None:
    checked = check_label_table(
        label_items(0, 2.0, np.int64(1), -1), 3, "test", label_kind="multiclass"
    )
    assert labels_of(checked) == [0, 2, 1, -1]
    for wrong, words in (
        ([0, 1, 0], r"1\.png\): the list \[0, 1, 0\]"),
        (3, "class 3"),
        (None, "no label"),
    ):
        with pytest.raises(DatalistError, match=words + ".*numbers from 0 to 2, or -1 .unknown"):
            check_label_table(label_items(0, wrong), 3, "test", label_kind="multiclass")
    with pytest.raises(ValueError, match="needs two classes or more"):
        check_label_table(label_items(0), 1, label_kind="multiclass")
    with pytest.warns(UserWarning, match="no positives of 1 of 3 classes.*class 1"):
        check_label_table(label_items(0, 2, -1), 3, label_kind="multiclass")
