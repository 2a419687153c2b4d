# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dice and Hausdorff distance, against loops over the pixels."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_afire.apps.evaluation import segmentation_metrics

NAN = float("nan")


def outline(mask: np.ndarray) -> list[tuple[int, int]]:
    """Pixels inside with a direct neighbor that is outside of the mask or of the picture."""
    padded = np.pad(mask, 1)
    return [
        (r, c)
        for r, c in np.argwhere(mask).tolist()
        if not (
            padded[r, c + 1] and padded[r + 2, c + 1] and padded[r + 1, c] and padded[r + 1, c + 2]
        )
    ]


def naive_metrics(
    pred: np.ndarray, truth: np.ndarray, sizes: tuple[float, float]
) -> tuple[float, float]:
    if not pred.any() and not truth.any():
        return 1.0, NAN
    if not pred.any() or not truth.any():
        return 0.0, math.hypot(*(s * n for s, n in zip(sizes, pred.shape, strict=True)))
    dice = 2 * (pred & truth).sum() / (pred.sum() + truth.sum())
    lines = outline(pred), outline(truth)
    worst = 0.0
    for one, other in (lines, lines[::-1]):
        nearest = [
            min(math.hypot((r - y) * sizes[0], (c - x) * sizes[1]) for y, x in other)
            for r, c in one
        ]
        worst = max(worst, float(np.percentile(nearest, 95)))
    return float(dice), worst


def random_masks(seed: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Random boxes; some masks are empty, some full, some touch the border."""
    rng = np.random.default_rng(seed)
    masks = np.zeros(shape, dtype=bool)
    for mask in masks.reshape(-1, *shape[-2:]):
        for _ in range(rng.integers(0, 3)):
            top, left = rng.integers(0, shape[-2]), rng.integers(0, shape[-1])
            mask[
                top : top + rng.integers(1, shape[-2] + 1),
                left : left + rng.integers(1, shape[-1] + 1),
            ] = True
        if rng.random() < 0.1:
            mask[:] = True
    return torch.from_numpy(masks)


@settings(max_examples=15)
@given(st.integers(0, 9999), st.sampled_from(["none", "image", "axis"]))
def test_equals_a_loop_without_warnings(seed: int, kind: str) -> None:
    pred, truth = random_masks(seed, (2, 3, 9, 12)), random_masks(seed + 1, (2, 3, 9, 12))
    pixel_size = {"none": None, "image": [0.5, 2.0], "axis": [[0.5, 0.7], [2.0, 1.0]]}[kind]
    by_axis = {
        "none": [(1, 1), (1, 1)],
        "image": [(0.5, 0.5), (2, 2)],
        "axis": [(0.5, 0.7), (2, 1)],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        result = segmentation_metrics(pred, truth, pixel_size)
    for b in range(2):
        for c in range(3):
            dice, hd95 = naive_metrics(pred[b, c].numpy(), truth[b, c].numpy(), by_axis[kind][b])
            assert float(result["dice"][b, c]) == pytest.approx(dice, abs=1e-6)
            assert float(result["hd95"][b, c]) == pytest.approx(hd95, abs=1e-4, nan_ok=True)


def test_empty_and_full_masks_by_hand() -> None:
    empty, full = torch.zeros(3, 4, dtype=torch.bool), torch.ones(3, 4, dtype=torch.bool)
    pred = torch.stack([empty, empty, full, full])[None]
    truth = torch.stack([empty, full, empty, full])[None]
    result = segmentation_metrics(pred, truth)
    assert result["dice"].tolist() == [[1, 0, 0, 1]]
    np.testing.assert_equal(result["hd95"].numpy(), [[NAN, 5, 5, 0]])
    np.testing.assert_equal(
        segmentation_metrics(pred, truth, [[2.0, 2.0]])["hd95"].numpy(), [[NAN, 10, 10, 0]]
    )
