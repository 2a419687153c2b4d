# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items that are judged, and their labels."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label, normal_items
from monai_afire.detection.detection_items import detection_items, validation_items

LESIONS: dict[str, Any] = {
    "kinds": ["SoftNodule", "CutPaste"],
    "contrasts": [0.1, 0.2, 0.4],
    "sizes": [0.1, 0.2],
}
COPIES = 12


def listed(*labels: int | None) -> list[dict[str, Any]]:
    """Items a.png, b.png, ... with these labels."""
    given_labels = [{} if label is None else {"label": label} for label in labels]
    return [
        {"image": f"{chr(97 + number)}.png", **label} for number, label in enumerate(given_labels)
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({}, None),
        ({"label": math.nan}, None),
        ({"label": 0}, 0),
        ({"label": 2}, 1),
        ({"label": -1}, None),
        ({"label": [0, -1]}, None),
        ({"label": [1, -1, None]}, 1),
        ({"label": torch.tensor([0.0, torch.nan])}, None),
        ({"abnormal": 0, "label": 3}, 0),
        ({"abnormal": math.nan, "label": 1}, 1),
        ({"abnormal": -1, "label": 0}, None),
    ],
)
def test_label(item: dict[str, Any], expected: int | None) -> None:
    assert abnormal_label(item) == expected


def test_abnormal_items_are_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="item 1, 3"):
        found = normal_items(listed(0, 1, None, 2))
    assert found == [{"image": "a.png", "label": 0}, {"image": "c.png", "label": 0}]


@pytest.mark.parametrize(
    "doubtful", [{"abnormal": math.nan}, {"abnormal": -1, "label": 0}, {"label": math.nan}]
)
def test_what_is_not_known_to_be_normal_does_not_count_as_normal(doubtful: dict[str, Any]) -> None:
    items = [{"image": "a.png", "abnormal": 0}, {"image": "b.png", **doubtful}, {"image": "c.png"}]
    no_lesions: dict[str, Any] = {"kinds": [], "contrasts": [], "sizes": []}
    for certain in (normal_items, lambda given: validation_items(given, no_lesions)):
        with pytest.warns(UserWarning, match="1 of 3 items"):
            assert [item["image"] for item in certain(items)] == ["a.png", "c.png"]
    with pytest.raises(DatalistError, match="2 of 3 items"):
        detection_items(items)


@given(st.integers(1, 60), st.integers(1, 70))
def test_thinning_is_even_and_takes_as_many_as_the_limit_allows(count: int, limit: int) -> None:
    items = [{"image": str(number)} for number in range(count)]
    numbers = [int(item["image"]) for item in normal_items(items, limit)]
    assert len(numbers) == min(limit, count)
    assert numbers[0] == 0
    steps = {int(step) for step in np.diff(numbers)}
    assert steps <= {count // limit, count // limit + 1}  # as even as whole numbers allow
    assert count - numbers[-1] <= math.ceil(count / limit)  # the end of the list takes part
    if count <= limit:
        assert numbers == list(range(count))


def test_items_keep_what_the_list_says() -> None:
    items = [{"image": "a.png", "abnormal": 1, "view": "PA"}, {"image": "b.png", "label": 0}]
    before = copy.deepcopy(items)
    assert detection_items(items) == [
        {"image": "a.png", "view": "PA", "label": 1, "lesion": None, "index": 0},
        {"image": "b.png", "label": 0, "lesion": None, "index": 1},
    ]
    assert items == before


def test_normal_images_are_copied_with_lesions() -> None:
    found = detection_items(listed(0, 1, 0), LESIONS)
    assert [item["index"] for item in found] == list(range(3 + 2 * COPIES))
    assert [item["label"] for item in found] == [0, 1, 0] + [1] * 2 * COPIES
    assert all(item["lesion"] is None for item in found[:3])
    wanted = set(itertools.product(*LESIONS.values()))
    for image in ("a.png", "c.png"):
        lesions = [item["lesion"] for item in found[3:] if item["image"] == image]
        assert len(lesions) == COPIES
        assert {(each["kind"], each["contrast"], each["size"]) for each in lesions} == wanted


@pytest.mark.parametrize("labels", [(0, 0), (None, 0)])
def test_validation_without_abnormal_images_paints_lesions(labels: tuple[int | None, ...]) -> None:
    found = validation_items(listed(*labels), LESIONS)
    assert [item["label"] for item in found] == [0, 0] + [1] * 2 * COPIES


@pytest.mark.parametrize("labels", [(0, 1), (None, 3, 0)])
def test_validation_with_abnormal_images_takes_them(labels: tuple[int | None, ...]) -> None:
    found = validation_items(listed(*labels), LESIONS)
    assert [item["label"] for item in found] == [int((label or 0) > 0) for label in labels]
    assert all(item["lesion"] is None and "abnormal" not in item for item in found)
