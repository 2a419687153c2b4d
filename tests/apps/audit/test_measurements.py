# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Measurements of one picture on values that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from monai_afire.apps.audit.measurements import (
    border_share,
    exposure,
    longest_text,
    lung_facts,
)
from monai_afire.data.phantom import draw_chest_phantom


def written(text: str, side: int, level: int) -> np.ndarray:
    """A drawn radiograph with text."""
    picture = Image.fromarray(
        np.rint(200 * draw_chest_phantom(3, side).image[0]).astype(np.uint8) + 20
    )
    ImageDraw.Draw(picture).text(
        (20, 12), text, fill=level, font=ImageFont.load_default(side // 28)
    )
    return np.asarray(picture, dtype=np.float32) / 255


@pytest.mark.parametrize("side", [384, pytest.param(1600, marks=pytest.mark.slow)])
def test_a_line_of_text_is_counted(side: int) -> None:
    assert longest_text(written("MILLER 1952", side, 255)) >= 5
    assert longest_text(written("", side, 255)) < 5
    assert longest_text(written("L", side, 255)) < 5


def test_borders_are_measured_as_area() -> None:
    inside = np.random.default_rng(0).random((60, 80), np.float32)
    assert border_share(inside) == 0
    assert border_share(np.pad(inside, ((20, 20), (0, 0)), constant_values=1)) == pytest.approx(0.4)
    assert border_share(np.zeros((40, 40), np.float32)) == 0


def test_clipping_is_counted() -> None:
    image = np.linspace(0.1, 0.9, 100, dtype=np.float32).reshape(10, 10)
    image[:2], image[9] = 1, 0
    facts = exposure(image)
    # the last row is outside of the middle
    assert (facts["white"], facts["black_inside"]) == (
        pytest.approx(0.2),
        0,
    )
    image[4, 2:5] = 0
    assert exposure(image)["black_inside"] == pytest.approx(3 / 36)
    assert facts["spread"] == pytest.approx(1, abs=0.01)


def test_cut_lungs_are_measured() -> None:
    lungs = torch.zeros(4, 64, 64, dtype=torch.bool)
    lungs[:3, 10:50, 10:26] = True  # one lung of 640 pixels
    lungs[0, 10:50, 36:44] = True  # and another, half as large
    lungs[2, :10, 10:26] = True  # 800 pixels, cut at the top
    facts = lung_facts(lungs)
    assert facts["second_lung"] == [0.5, 0, 0, 0]
    assert facts["lungs_at_edge"] == pytest.approx([0, 0, 16 / 800**0.5, 0])
