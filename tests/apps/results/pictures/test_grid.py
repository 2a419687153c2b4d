# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pages of pictures, by the pixels and texts on them."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.results.pictures.grid import contact_sheet
from monai_afire.apps.results.pictures.heat_map import overlay_heat_map
from monai_afire.visualize.figures import figure_to_array


def gray(level: float, height: int = 40, width: int = 40) -> np.ndarray:
    return np.full((height, width), level)


def test_heat_is_shared_by_all_pictures_of_a_contact_sheet() -> None:
    levels, heats = (0.9, 0.1, 0.5), (0.0, 0.25, 1.0)
    figure = contact_sheet(
        [gray(level) for level in levels],
        [gray(heat) for heat in heats],
        list("abc"),
        [None] * 3,
        (0, 2),
        "how they were chosen\nand what the colors mean",
        "heat of images",
    )
    *axes, bar = figure.axes
    assert [axis.get_title() for axis in axes] == list("abc")
    for level, heat, axis in zip(levels, heats, axes, strict=True):
        pair = np.asarray(axis.images[0].get_array())
        assert pair[20, 10] == pytest.approx([255 * level] * 3, abs=1)
        assert (pair[20, -10] == overlay_heat_map(gray(level), gray(heat), 0, 2)[0, 0]).all()
    assert bar.get_ylim() == (0, 2)
    assert bar.get_ylabel() == "heat of images"
    figure_to_array(figure)
