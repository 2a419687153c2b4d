# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Outlines and landmarks over radiographs: where the colored pixels are."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.results.pictures.draw import (
    CLASS_COLORS,
    TRUTH_COLOR,
    class_color,
    landmark_picture,
    outline_picture,
)


def colored(picture: np.ndarray) -> np.ndarray:
    return (picture.max(-1).astype(int) - picture.min(-1)) > 60


def near(picture: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    return np.abs(picture.astype(int) - np.array(color)).max(-1) < 40


def box(top: int, left: int, bottom: int, right: int, size: int = 32) -> np.ndarray:
    mask = np.zeros((size, size), dtype=bool)
    mask[top:bottom, left:right] = True
    return mask


def test_outline_lies_on_the_edge_of_the_mask() -> None:
    picture = outline_picture(np.full((32, 32), 0.5), box(8, 4, 20, 28)[None], side=320)
    assert picture.shape == (320, 320, 3)
    assert picture.dtype == np.uint8
    rows, columns = np.nonzero(colored(picture))
    assert (rows.min(), columns.min()) == pytest.approx((80, 40), abs=2)
    assert (rows.max(), columns.max()) == pytest.approx((200, 280), abs=2)
    assert not colored(picture)[86:194, 46:274].any()
    assert near(picture, class_color(0)).sum() > 500


def test_landmarks_lie_where_they_are() -> None:
    predicted, truth = (
        np.array([[2.0, 5.0], [np.nan, 1.0], [10.0, 12.0]]),
        np.array([[8.0, 5.0], [4.0, 4.0], [np.nan, 2.0]]),
    )
    picture = landmark_picture(np.zeros((16, 32)), predicted, truth, side=640)
    assert picture.shape == (320, 640, 3)
    orange, cyan = near(picture, CLASS_COLORS[0]), near(picture, TRUTH_COLOR)
    for row, column in predicted[[0, 2]]:
        assert orange[int(20 * row + 10), int(20 * column + 10)]
    assert orange[90, 110]  # the line from one to the other
    # rings: empty in the middle, and only two of them
    assert not cyan[90, 90]
    rows, columns = np.nonzero(cyan & (np.arange(640) < 100))
    assert (rows.mean(), columns.mean()) == pytest.approx((90, 90), abs=1)
    assert not cyan[:, 130:].any()
