# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The choice of visible patches: their number, their distribution, their seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monai_afire.transforms import RandVisiblePatches


def draws(number: int, side: int = 4, ratio: float = 0.75, seed: int = 0) -> np.ndarray:
    transform = RandVisiblePatches(8, ratio).set_random_state(seed)
    return np.stack([transform(torch.zeros(1, 8 * side, 8 * side)) for _ in range(number)])


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 99))
@example(10, 10, 90)  # 100 * (1 - 0.9) is 9.99... in binary
def test_every_image_keeps_exactly_the_paper_s_number(
    rows: int, columns: int, percent: int
) -> None:
    number = rows * columns
    kept = number * (100 - percent) // 100  # in whole numbers: nothing is lost to binary fractions
    transform = RandVisiblePatches((2, 3), percent / 100)
    image = np.zeros((3, 2 * rows, 3 * columns))
    if not 0 < kept < number:
        with pytest.raises(ValueError, match="mask_ratio"):
            transform(image)
        return
    for _ in range(3):
        visible = transform(image)
        assert visible.dtype == np.int64
        assert len(visible) == len(set(visible)) == kept
        assert sorted(visible) == list(visible)
        assert 0 <= visible[0] <= visible[-1] < number


def test_places_and_pairs_of_places_are_uniform() -> None:
    visible = draws(4000)
    seen = np.zeros((4000, 16))
    np.put_along_axis(seen, visible, 1, axis=1)
    # 4 of 16: a place with probability 1/4, a pair with 4 * 3 / (16 * 15) = 1/20; five standard deviations
    assert np.abs(seen.mean(0) - 1 / 4).max() < 5 * (3 / 16 / 4000) ** 0.5
    pairs = (seen.T @ seen / 4000)[~np.eye(16, dtype=bool)]
    assert np.abs(pairs - 1 / 20).max() < 5 * (0.05 * 0.95 / 4000) ** 0.5
