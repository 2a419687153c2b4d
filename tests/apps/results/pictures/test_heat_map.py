# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps laid over radiographs, against a loop over the pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.apps.results.pictures.heat_map import HEAT_COLORS, overlay_heat_map

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def naive_overlay(
    image: np.ndarray, heat: np.ndarray, low: float, high: float, alpha: float
) -> np.ndarray:
    output = np.zeros((*image.shape, 3))
    for place, gray in np.ndenumerate(image):
        warmth = min(max((heat[place] - low) / (high - low), 0), 1)
        step = int(warmth * 255 + 0.5)
        opacity = alpha * step / 255
        output[place] = (1 - opacity) * int(255 * gray + 0.5) + opacity * HEAT_COLORS[step]
    return output


@settings(max_examples=30)
@given(st.integers(0, 999), st.floats(-5, 5), st.floats(0.01, 9), st.floats(0.05, 1))
def test_overlay_equals_a_loop(seed: int, low: float, width: float, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    image, heat = rng.random((5, 7)), rng.normal(low + width / 2, width, (5, 7))
    overlay = overlay_heat_map(image, heat, low, low + width, alpha)
    assert overlay.shape == (5, 7, 3)
    assert overlay.dtype == np.uint8
    np.testing.assert_allclose(
        overlay, naive_overlay(image, heat, low, low + width, alpha), atol=0.502
    )


def test_cold_pixels_are_the_image() -> None:
    gray = np.arange(256).reshape(16, 16)
    for heat in (np.full((16, 16), 0.2), np.full((16, 16), -np.inf), np.full((16, 16), -1e300)):
        overlay = overlay_heat_map(gray / 255, heat, 0.2, 0.8, alpha=1.0)
        np.testing.assert_array_equal(overlay, np.stack([gray] * 3, axis=-1))


def test_hottest_pixels_have_the_strongest_color() -> None:
    image = np.linspace(0, 1, 12).reshape(3, 4)
    for heat in (0.8, 1e300, np.inf):
        overlay = overlay_heat_map(image, np.full((3, 4), heat), 0.2, 0.8, alpha=1.0)
        assert (overlay == HEAT_COLORS[-1]).all()
    assert (
        overlay_heat_map(image, np.full((3, 4), 1e300), 0, 1e-30, alpha=1.0) == HEAT_COLORS[-1]
    ).all()
    half = overlay_heat_map(np.zeros((1, 1)), np.ones((1, 1)), 0.2, 0.8, alpha=0.5)
    np.testing.assert_allclose(half[0, 0], HEAT_COLORS[-1] / 2, atol=0.51)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"image": np.zeros((1, 4, 4))}, "image"),
        ({"heat": np.zeros((2, 2))}, "heat"),
        ({"image": np.full((4, 4), 255)}, "image"),
        ({"image": np.full((4, 4), np.nan)}, "image"),
        ({"heat": np.where(np.eye(4), np.nan, 0)}, "heat"),
        ({"low": 1.0}, "low"),
        ({"high": np.inf}, "low"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes: dict[str, Any], name: str) -> None:
    settings: dict[str, Any] = {
        "image": np.zeros((4, 4)),
        "heat": np.zeros((4, 4)),
        "low": 0.0,
        "high": 1.0,
    }
    with pytest.raises(ValueError, match=name):
        overlay_heat_map(**settings | changes)


def test_without_fading_each_color_is_as_opaque_as_the_strongest() -> None:
    heat = np.array([[0.0, 1.0, 1.1, 3.0, 5.0, np.inf]])
    for gray in (0.0, 1.0):
        image = np.full((1, 6), gray)
        overlay = overlay_heat_map(image, heat, 1.0, 5.0, alpha=0.4, fades=False)[0]
        assert (overlay[:2] == 255 * gray).all(), "no color up to the lowest heat"
        for place, level in ((2, 6), (3, 128), (4, 255), (5, 255)):
            expected = 0.4 * HEAT_COLORS[level] + 0.6 * 255 * gray
            np.testing.assert_allclose(overlay[place], expected, atol=1)
