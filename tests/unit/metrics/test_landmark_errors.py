# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmark positions, errors and success rates, against loops over the maps."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.metrics.landmark_errors import landmark_positions, radial_errors

NAN = float("nan")


def naive_position(heatmap: np.ndarray, window: int) -> np.ndarray:
    dims = heatmap.ndim
    if not np.isfinite(heatmap).all() or heatmap.max() == heatmap.min():
        return np.full(dims, NAN)
    peak = np.unravel_index(heatmap.argmax(), heatmap.shape)
    ranges = []
    for axis in range(dims):
        reach = min(window // 2, peak[axis], heatmap.shape[axis] - 1 - peak[axis])
        ranges.append(range(peak[axis] - reach, peak[axis] + reach + 1))
    total, moment = 0.0, np.zeros(dims)
    for pixel in product(*ranges):
        mass = max(float(heatmap[pixel]), 0.0)
        total += mass
        moment += mass * np.array(pixel)
    return moment / total if total else np.array(peak, dtype=float)


@settings(max_examples=40)
@given(
    st.integers(0, 9999),
    st.sampled_from([1, 3, 5, 9]),
    st.sampled_from([(6, 9), (1, 5), (5, 5), (1, 1)]),
    st.floats(-3, 3),
)
def test_positions_equal_a_loop(
    seed: int, window: int, shape: tuple[int, ...], shift: float
) -> None:
    maps = np.random.default_rng(seed).normal(shift, 1.0, (2, 3, *shape))
    positions = landmark_positions(torch.from_numpy(maps), window)
    assert positions.shape == (2, 3, 2)
    expected = [[naive_position(heatmap, window) for heatmap in image] for image in maps]
    np.testing.assert_allclose(positions.numpy(), np.array(expected), atol=1e-9)


def test_maps_that_point_nowhere() -> None:
    maps = torch.zeros(1, 7, 6, 6)
    maps[0, 1] = 0.7
    maps[0, 2] = -math.inf
    maps[0, 3, 2, 3], maps[0, 4, 2, 3], maps[0, 5, 0, 5] = math.nan, math.inf, 1e-30
    maps[0, 6] = -1.0
    maps[0, 6, 4, 1] = -0.5
    positions = landmark_positions(maps)
    assert positions[0, :5].isnan().all()
    assert positions[0, 5:].tolist() == [[0, 5], [4, 1]]


def test_errors_by_hand() -> None:
    predicted = torch.tensor(
        [[[3.0, 4.0], [NAN, 1.0], [1.0, 1.0]], [[6.0, 8.0], [0.0, 0.0], [NAN, NAN]]]
    )
    truth = torch.tensor(
        [[[0.0, 0.0], [1.0, 1.0], [1.0, NAN]], [[0.0, 0.0], [0.0, 2.0], [NAN, NAN]]]
    )
    inf = math.inf
    for size, expected in {
        None: [[5, inf, NAN], [10, 2, NAN]],
        (2.0, 0.5): [[10, inf, NAN], [5, 1, NAN]],
        ((1.0, 0.0), (0.5, 2.0)): [[3, inf, NAN], [math.hypot(3, 16), 4, NAN]],
        (NAN, 1.0): [[NAN, NAN, NAN], [10, 2, NAN]],
        ((1.0, NAN), (1.0, 1.0)): [[NAN, NAN, NAN], [10, 2, NAN]],
    }.items():
        errors = radial_errors(predicted, truth, None if size is None else torch.tensor(size))
        torch.testing.assert_close(
            errors, torch.tensor(expected, dtype=torch.float32), equal_nan=True
        )


def test_errors_need_one_size_per_image() -> None:
    points = torch.zeros(2, 3, 2)
    with pytest.raises(ValueError, match="pixel_size"):
        radial_errors(points, points, [1.0, 1.0, 1.0])
