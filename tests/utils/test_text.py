# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lists of things, and names of items, in messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from monai.data import MetaTensor

from monai_afire.utils.text import first_few, first_line, image_name, known_text


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ""),
        (1, "0"),
        (5, "0, 1, 2, 3, 4"),
        (6, "0, 1, 2, 3, 4 and 1 more"),
        (1005, "0, 1, 2, 3, 4 and 1,000 more"),
    ],
)
def test_first_few_are_named_and_the_others_counted(count: int, expected: str) -> None:
    assert first_few(range(count)) == expected


def test_any_iterable_of_anything_with_a_text() -> None:
    assert first_few(part for part in (Path("a"), 2, None)) == "a, 2, None"
    assert first_few({"x": 1, "y": 2}, shown=1) == "x and 1 more"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", "ValueError"),
        (" \n ", "ValueError"),
        ("no key 'a':\n  b", "no key 'a'"),
        ("\na - b.", "a - b"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 120 + "..."),
    ],
)
def test_the_message_of_a_library_fits_into_ours(message: str, expected: str) -> None:
    assert first_line(ValueError(message)) == expected


@pytest.mark.parametrize("value", [None, float("nan"), "", "  ", "unknown", " Unknown ", "NaN"])
def test_unknown_has_no_text(value: Any) -> None:
    assert known_text(value) == ""


def test_known_text() -> None:
    assert [known_text(value) for value in (7, 57.0, 1.5, 0, " PA ", False)] == [
        "7",
        "57",
        "1.5",
        "0",
        "PA",
        "False",
    ]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("a/b.png", "a/b.png"),
        (Path("a/b.png"), "a/b.png"),
        (MetaTensor(torch.zeros(1, 2, 2), meta={"filename_or_obj": "a/b.png"}), "a/b.png"),
        (MetaTensor(torch.zeros(1, 2, 2)), "an item"),
        (torch.zeros(1, 2, 2), "an item"),
        (None, "an item"),
    ],
)
def test_item_is_named_by_its_image(image: Any, name: str) -> None:
    assert image_name({"image": image}) == name
    assert image_name({"picture": image}, "picture") == name
    assert image_name({"other": image}) == "an item"
