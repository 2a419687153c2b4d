# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Grids of pictures, and figures as files and arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from monai_afire.visualize.figures import figure_to_array, picture_grid, save_figure

FLAT = [np.full((8, 8), level) for level in (0.0, 0.25, 0.5, 0.75)]


def test_picture_grid_shows_each_picture_in_its_place() -> None:
    pixels = figure_to_array(picture_grid([FLAT[:2], FLAT[2:]], ["a", "b"], "title"))
    height, width = pixels.shape[:2]
    assert (height, width) == (round(110 * (2 * 2.2 + 0.5)), 484)
    middles = [
        int(pixels[int(y * height), int(x * width), 0]) for y in (0.35, 0.75) for x in (0.25, 0.75)
    ]
    np.testing.assert_allclose(middles, [0, 64, 128, 191], atol=1)


@pytest.mark.parametrize(("name", "kind"), [("a.JPG", "JPEG"), ("new/folder/a", "PNG")])
def test_file_format_is_that_of_the_extension(tmp_path: Path, name: str, kind: str) -> None:
    save_figure(picture_grid([FLAT], ["a", "b", "c", "d"], "title"), tmp_path / name)
    with Image.open(tmp_path / name) as picture:
        assert picture.format == kind
