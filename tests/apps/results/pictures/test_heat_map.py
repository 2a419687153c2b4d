# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps laid over radiographs, against a loop over the pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.apps.results.pictures.heat_map import HEAT_COLORS, OPACITY, overlay_heat_map

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def naive_overlay(
    image: np.ndarray, heat: np.ndarray, low: float, high: float, fades: bool
) -> np.ndarray:
    output = np.zeros((*image.shape, 3))
    for place, gray in np.ndenumerate(image):
        warmth = min(max((heat[place] - low) / (high - low), 0), 1)
        step = int(warmth * 255 + 0.5)
        opacity = OPACITY * (step / 255 if fades else step > 0)
        output[place] = (1 - opacity) * int(255 * gray + 0.5) + opacity * HEAT_COLORS[step]
    return output


@settings(max_examples=30)
@given(st.integers(0, 999), st.floats(-5, 5), st.floats(0.01, 9), st.booleans())
def test_overlay_equals_a_loop(seed: int, low: float, width: float, fades: bool) -> None:
    rng = np.random.default_rng(seed)
    image, heat = rng.random((5, 7)), rng.normal(low + width / 2, width, (5, 7))
    overlay = overlay_heat_map(image, heat, low, low + width, fades)
    assert overlay.shape == (5, 7, 3)
    assert overlay.dtype == np.uint8
    np.testing.assert_allclose(
        overlay, naive_overlay(image, heat, low, low + width, fades), atol=0.502
    )
