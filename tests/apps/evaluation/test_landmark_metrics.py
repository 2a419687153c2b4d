# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Positions in resized pictures."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.apps.evaluation.landmark_metrics import rescaled_positions


@settings(max_examples=30)
@given(
    st.integers(0, 999), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)
)
def test_rescaled_positions_keep_the_corners_and_go_back(
    seed: int, a: int, b: int, c: int, d: int
) -> None:
    corners = torch.tensor([[-0.5, -0.5], [a - 0.5, b - 0.5]], dtype=torch.float64)
    torch.testing.assert_close(
        rescaled_positions(corners, (a, b), (c, d)),
        corners.new_tensor([[-0.5] * 2, [c - 0.5, d - 0.5]]),
    )
    points = (
        torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 10
    )
    torch.testing.assert_close(
        rescaled_positions(rescaled_positions(points, (a, b), (c, d)), (c, d), (a, b)), points
    )
