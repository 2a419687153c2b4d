# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Radiograph and heat map side by side, and the names of the place that is hottest."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.results.pictures.heat_map import MARK_COLOR
from monai_afire.apps.worklist import lung_zone
from monai_afire.apps.worklist.heat_panels import (
    emphasized_heat_map,
    hottest_zone,
)
from monai_afire.apps.worklist.heat_places import hottest_place


def test_the_hottest_zone_is_one_and_cold_images_have_none() -> None:
    heat = np.zeros((8, 8))
    heat[1:3, 1:4] = 2.0
    heat[1, 1] = 3.0
    heat[6, 6] = 2.5  # apart from the strongest
    expected = np.zeros((8, 8), dtype=bool)
    expected[1:3, 1:4] = True
    np.testing.assert_array_equal(hottest_zone(heat, 1.0), expected)
    assert not hottest_zone(heat, 3.0).any()
    image = np.full((8, 8), 0.5)
    plain = np.stack([np.full((8, 8), 128, np.uint8)] * 3, -1)
    np.testing.assert_array_equal(emphasized_heat_map(image, heat, 3.0, 9.0), plain)


def test_the_outline_is_around_the_hottest_zone() -> None:
    heat = np.zeros((64, 64))
    heat[20:40, 30:50] = 2.0
    shown = emphasized_heat_map(np.zeros((64, 64)), heat, 1.0, 50.0)
    cyan = np.array([int(MARK_COLOR[n : n + 2], 16) for n in (1, 3, 5)])
    rows, columns = np.nonzero((shown == cyan).all(-1))
    assert [rows.min(), columns.min()] == pytest.approx([20, 30], abs=1)
    assert [rows.max(), columns.max()] == pytest.approx([39, 49], abs=1)
    assert shown[30, 40].max() > 100  # seen, though weak on the common scale


# ---- names of places


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0, 8), "upper right"),
        ((7, 4), "lower center"),
        ((4, 4), "center"),
    ],
)
def test_hottest_place_is_that_of_the_picture(place: tuple[int, int], words: str) -> None:
    heat = np.random.default_rng(0).random((9, 9))
    heat[place] = 5
    assert hottest_place(heat, 1.0) == words
    assert hottest_place(heat, 5.0) == ""


@pytest.mark.parametrize(
    ("row", "column", "name"),
    [
        (10, 10, "right lung, upper zone"),
        (50, 50, "left lung, lower zone"),
        (34, 54, "left lung, upper zone"),  # of a lung that is shorter than the other
        (30, 30, "between the lungs"),
        (1, 30, "outside the lungs"),
    ],
)
def test_places_are_named_as_the_patient_has_them(row: int, column: int, name: str) -> None:
    lungs = np.zeros((64, 64))
    lungs[6:58, 6:24] = lungs[26:58, 40:58] = 0.9
    heat = np.zeros((64, 64))
    heat[row, column] = 2
    assert lung_zone(heat, lungs, low=1.0) == name
    assert lung_zone(heat, np.zeros((64, 64)), low=1.0) == ""
    assert lung_zone(heat, lungs, low=3.0) == ""
