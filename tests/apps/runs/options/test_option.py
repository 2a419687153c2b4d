# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Every option answers every value: with a value of its kind, or with what was found and what is needed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from monai_afire.apps.runs import OPTIONS, Option
from monai_afire.apps.runs.options import kinds

STRANGE = [
    *(None, True, False, "", "abc", "true", "nan", "cuda:-1", "\u2622", b"cpu"),
    *(-1, 0, 0.5, 10**30, 1e308, math.nan, math.inf, -math.inf),
    *(
        [],
        ["abc"],
        [1, 2],
        [2, 1],
        [None],
        (3,),
        {},
        {"abc": 1},
        {"num_patients": {"abc": 1}},
        object(),
    ),
]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=list(OPTIONS))
def test_an_option_answers_any_value(option: Option) -> None:
    complaints = [complaint for value in STRANGE if (complaint := complaint_about(option, value))]
    assert len(complaints) > len(STRANGE) / 3
    assert all(complaint.startswith(("found ", "it has no entry ")) for complaint in complaints)


def complaint_about(option: Option, value: Any) -> str:
    """What the option says; empty where it takes the value, and takes what it made of it again."""
    try:
        read = option.read(value)
    except ValueError as error:
        return str(error)
    assert option.read(read) == read
    return ""


@pytest.mark.parametrize("computed", ["$2 * @epochs", "@epochs"])
def test_what_the_config_computes_is_left_to_it(computed: str) -> None:
    assert all(option.read(computed) == computed for option in OPTIONS.values())


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        (kinds.SHARE, [0, 1, 0.5], [-1e-9, 1.0001]),
        (kinds.number("a number in (0, 1)", gt=0, lt=1), [1e-9, 0.5], [0, 1, "x"]),
        (kinds.POSITIVE_INTEGER, [1, 7], [0, 1.5, 7.0, "3", True]),
        (kinds.choice(("a", "b")), ["a"], ["c", 1]),
        (kinds.PATH, ["a/b", "2024"], [True, 1.5, None, 2024, "", "~/a"]),
        (
            kinds.ascending_pair(kinds.POSITIVE_INTEGER),
            [[1, 4], (2, 2), ["$1 + 1", 3]],
            [[4, 1], [1], 3, "12"],
        ),
        (
            kinds.per_axis(kinds.POSITIVE_INTEGER),
            [2, [2, 3]],
            [0, [1], [1, 2, 3], [0, 1], True],
        ),
        (kinds.SWITCH, [True, False], [2, 0, "no", "true", None]),
        (kinds.DEVICE, ["cpu"], ["gpu", "", -1, "meta", "cpu:1"]),
        (kinds.ENCODER, ["timm:vit_small_patch16_224", "vit", "residual"], ["dinov3", 3]),
    ],
)
def test_types_hold_their_bounds(kind: Any, inside: list[Any], outside: list[Any]) -> None:
    option = Option("name", kind, "meaning")
    for value in inside:
        option.read(value)
    for value in outside:
        with pytest.raises(ValueError, match="needs"):
            option.read(value)


@pytest.mark.parametrize(
    ("kind", "description"),
    [
        (kinds.INTEGER, "a whole number >= 0"),
        (kinds.integer(2, 3), "a whole number in [2, 3]"),
        (kinds.choice(("a", "b", "c")), "a, b or c"),
        (kinds.per_axis(kinds.INTEGER), "a whole number >= 0, or a list of one for each axis"),
        (
            kinds.ascending_pair(kinds.POSITIVE_INTEGER),
            "a list of 2 values, each a whole number >= 1, ascending",
        ),
    ],
)
def test_types_are_described(kind: Any, description: str) -> None:
    assert Option("name", kind, "meaning").values == description


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"found 'x{59}\.\.\., needs") as caught:
        OPTIONS["epochs"].read("x" * 1000)
    assert len(str(caught.value)) < 120
