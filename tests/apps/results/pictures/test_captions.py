# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Captions and legends are in their places and colors, and leave the rest of a picture as it is."""

from __future__ import annotations

import numpy as np

from monai_afire.apps.results.pictures.captions import captioned, with_legend


def test_names_have_lines_of_their_own_in_their_colors() -> None:
    picture = np.full((300, 300, 3), 128, np.uint8)
    shown = with_legend(picture, {"left lung": (255, 0, 0), "heart": (0, 255, 0)})
    changed = (shown != picture).any(-1)
    assert not changed[40:].any()
    rows = [np.nonzero((shown == color).all(-1))[0] for color in ((255, 0, 0), (0, 255, 0))]
    assert len(rows[0]) >= 10
    assert rows[0].max() < rows[1].min()
    assert (picture == 128).all()


def test_a_caption_stands_in_the_lower_corner_of_any_picture() -> None:
    for level in (0, 128, 255):
        picture = np.full((300, 400, 3), level, np.uint8)
        changed = np.abs(captioned(picture).astype(int) - level).max(-1) > 100
        rows, columns = np.nonzero(changed)
        assert rows.min() > 270
        assert columns.max() < 200
        assert changed.sum() > 200
    assert captioned(np.zeros((2, 8, 3), np.uint8)).shape == (2, 8, 3)
