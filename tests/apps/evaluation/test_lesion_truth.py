# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where the lesions of an image are: by a mask, by boxes, or not known."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from monai_afire.apps.evaluation.lesion_truth import lesion_truth


def lesion_mask() -> np.ndarray:
    """48 rows and 64 columns with a lesion that has no symmetry."""
    mask = np.zeros((48, 64), np.uint8)
    mask[6:22, 37:60] = 1
    mask[30:33, 4:9] = 1
    return mask


def block_majority(mask: np.ndarray, rows: int, columns: int) -> np.ndarray:
    height, width = mask.shape[0] // rows, mask.shape[1] // columns
    blocks = mask.reshape(rows, height, columns, width)
    return blocks.mean(axis=(1, 3)) >= 0.5


@pytest.mark.parametrize(
    ("key", "size"), [("mask", (48, 64)), ("lesion_truth", (24, 16)), ("mask", (12, 32))]
)
def test_mask_of_a_file(tmp_path: Path, key: str, size: tuple[int, int]) -> None:
    mask = lesion_mask()
    Image.fromarray(mask).save(tmp_path / "mask.png")
    truth = lesion_truth({key: str(tmp_path / "mask.png")}, (480, 640), size)
    np.testing.assert_array_equal(truth, block_majority(mask, *size))


def test_mask_counts_before_boxes_and_empty_entries_do_not(tmp_path: Path) -> None:
    Image.fromarray(lesion_mask()).save(tmp_path / "mask.png")
    item = {"lesion_truth": None, "mask": [str(tmp_path / "mask.png")], "boxes": [[0, 0, 64, 48]]}
    truth = lesion_truth(item, (48, 64), (48, 64))
    assert truth is not None
    assert truth.sum() == lesion_mask().sum()


def naive_boxes(
    boxes: list[tuple[int, int, int, int]], shape: tuple[int, int], size: tuple[int, int]
) -> np.ndarray:
    """Every pixel whose open square meets an open box, in exact arithmetic."""
    truth = np.zeros(size, dtype=bool)
    for (row, column), (x, y, width, height) in ((p, b) for p in np.ndindex(*size) for b in boxes):
        bottom, right = Fraction(shape[0], size[0]), Fraction(shape[1], size[1])
        meets_rows = row * bottom < y + height and (row + 1) * bottom > y
        meets_columns = column * right < x + width and (column + 1) * right > x
        truth[row, column] |= meets_rows and meets_columns
    return truth


sides = st.integers(1, 60)
boxes_anywhere = st.tuples(
    st.integers(-50, 80), st.integers(-50, 80), st.integers(1, 70), st.integers(1, 70)
)


@given(
    st.lists(boxes_anywhere, min_size=1, max_size=3),
    st.tuples(sides, sides),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_pixels_that_a_box_touches(
    boxes: list[tuple[int, int, int, int]], shape: tuple[int, int], size: tuple[int, int]
) -> None:
    truth = lesion_truth({"boxes": boxes}, shape, size)
    np.testing.assert_array_equal(truth, naive_boxes(boxes, shape, size))


@pytest.mark.parametrize(("shown", "size"), [(100, 224), (600, 128), (700, 49), (49, 49)])
def test_box_that_ends_between_two_pixels_touches_one_only(shown: int, size: int) -> None:
    """In binary fractions 50 * (224 / 100) is more than 112."""
    for end in range(25, shown + 1, 25) if shown > 49 else range(1, 50):
        for box in ([0, 0, end, shown], [end, 0, shown - end, shown]):
            truth = lesion_truth({"boxes": [box]}, (shown, shown), (size, size))
            assert truth is not None
            before = Fraction(end * size, shown)
            assert truth[0].sum() == (
                math.ceil(before) if box[0] == 0 else size - math.floor(before)
            )


@pytest.mark.parametrize(
    "item", [{}, {"boxes": []}, {"boxes": None}, {"mask": None, "lesion_truth": ""}]
)
def test_nothing_is_known(item: dict[str, Any]) -> None:
    assert lesion_truth(item, (16, 16), (4, 4)) is None
