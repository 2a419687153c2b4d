# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Radiograph and heat map side by side, and the names of the place that is hottest."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.results.pictures.heat_map import MARK_COLOR
from monai_afire.apps.worklist import lung_zone
from monai_afire.apps.worklist.heat_panels import (
    KEY_STARTS,
    emphasized_heat_map,
    heat_panels,
    hottest_zone,
)
from monai_afire.apps.worklist.heat_places import hottest_place

HEADER, GAP = 20, 5  # of pictures up to 300 pixels, whose texts have the smallest size
BAR = 6  # a column of the bar, behind the heat map


def test_radiograph_overlay_and_a_bar_that_has_the_colors_of_the_map_at_the_same_heat() -> None:
    """Whatever the hottest place of the image is: at 95 % of normal patches, half way, and at the highest of them."""
    rng = np.random.default_rng(0)
    image, heat = rng.integers(0, 256, (200, 150)) / 255, rng.uniform(0, 4, (200, 150))
    picture = heat_panels(image, heat, 1.0, 3.0, "score 1")
    left, right = picture[HEADER:220, :150], picture[HEADER:220, 150 + GAP : 300 + GAP]
    np.testing.assert_array_equal(left, np.rint(image * 255)[..., None].repeat(3, axis=2))
    np.testing.assert_array_equal(right, emphasized_heat_map(image, heat, 1.0, 3.0))
    column = picture[HEADER:220, 2 * 150 + GAP + BAR].astype(int)[::-1]
    _, low, high = KEY_STARTS
    for value in (1.1, 1.5, 2.0, 2.5, 2.9):
        place = round((low + (value - 1.0) / 2 * (high - low)) * 199)
        hot = np.zeros((8, 8))
        hot[:, 4:] = value
        hot[0, 0] = value + 1  # its outline is elsewhere
        shown = emphasized_heat_map(np.full((8, 8), 0.5), hot, 1.0, 3.0)[6, 6].astype(int)
        np.testing.assert_allclose(column[place], shown, atol=6, err_msg=str(value))


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
        ((4, 0), "middle left"),
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
        (30, 54, "left lung, middle zone"),
        (30, 30, "between the lungs"),
        (1, 30, "outside the lungs"),
        (62, 2, "outside the lungs"),
    ],
)
def test_places_are_named_as_the_patient_has_them(row: int, column: int, name: str) -> None:
    lungs = np.zeros((64, 64))
    lungs[6:58, 6:24] = lungs[6:58, 40:58] = 0.9
    heat = np.zeros((64, 64))
    heat[row, column] = 2
    assert lung_zone(heat, lungs, low=1.0) == name
    assert lung_zone(heat, np.zeros((64, 64)), low=1.0) == ""
    assert lung_zone(heat, lungs, low=3.0) == ""
