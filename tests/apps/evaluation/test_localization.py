# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of anomaly maps, of pixels and of tokens, against loops and cases by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from naive.afire import lesion_components

from monai_afire.apps.evaluation.localization import (
    aupro,
    localization_row,
    pointing_game,
    upsampled,
)

GRID, SIZE = (3, 4), (9, 8)


def test_pointing_game() -> None:
    values = np.zeros((5, 7))
    values[2, 4] = 1
    mask = np.zeros((5, 7), dtype=bool)
    mask[1:3, 4:6] = True
    assert pointing_game(values, mask) == 1.0
    assert pointing_game(values, ~mask) == 0.0
    values[0, 0] = 1  # two pixels share the maximum
    assert pointing_game(values, mask) == 0.5
    assert pointing_game(np.zeros((5, 7)), mask) == pytest.approx(4 / 35)
    assert math.isnan(pointing_game(values, ~mask & mask))
    assert pointing_game(np.arange(8.0).reshape(2, 2, 2), np.arange(8).reshape(2, 2, 2) == 7) == 1.0


def naive_aupro(maps: list[np.ndarray], masks: list[np.ndarray], max_fpr: float) -> float:
    """The curve threshold by threshold, and its area by Riemann sums of the interpolated curve."""
    normal = np.concatenate([image[mask == 0] for image, mask in zip(maps, masks, strict=True)])
    regions = [
        [image[pixel] for pixel in region]
        for image, mask in zip(maps, masks, strict=True)
        for region in lesion_components(mask)
    ]
    points = [(0.0, 0.0)]
    for threshold in sorted({v for image in maps for v in image.ravel().tolist()}, reverse=True):
        overlaps = [sum(v >= threshold for v in region) / len(region) for region in regions]
        points.append((float((normal >= threshold).mean()), sum(overlaps) / len(overlaps)))
    area = 0.0
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 < max_fpr and x1 > x0:
            end = min(x1, max_fpr)
            y_end = y0 + (y1 - y0) * (end - x0) / (x1 - x0)
            area += (end - x0) * (y0 + y_end) / 2
    return area / max_fpr


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_fpr", [0.05, 0.3, 1.0])
def test_aupro_equals_loops(seed: int, max_fpr: float) -> None:
    rng = np.random.default_rng(seed)
    masks = [(rng.random((7, 8)) < density).astype(np.uint8) for density in (0.15, 0.3, 0.0)]
    maps = [(rng.random(mask.shape) + 0.4 * mask).round(1 if seed % 2 else 9) for mask in masks]
    assert aupro(maps, masks, max_fpr) == pytest.approx(naive_aupro(maps, masks, max_fpr), rel=1e-9)


def test_aupro_by_hand() -> None:
    mask = np.array([[1, 1, 1, 1, 0, 0, 0, 0, 1]])
    perfect = mask.astype(float)
    assert aupro([perfect], [mask]) == aupro([perfect], [mask], 1.0) == 1.0
    assert aupro([1 - perfect], [mask], 0.3) == 0.0
    # the large lesion is found, the small one not before all normal pixels: the overlap is 1/2 all the way
    half = np.array([[1.0, 1, 1, 1, 0.5, 0.4, 0.3, 0.2, 0.0]])
    assert aupro([half], [mask], 0.3) == pytest.approx(0.5)
    # a constant map is the diagonal from (0, 0) to (1, 1)
    assert aupro([np.zeros((1, 9))], [mask], 0.3) == pytest.approx(0.15)
    assert aupro([np.zeros((1, 9))], [mask], 1.0) == pytest.approx(0.5)
    # diagonal neighbors are one lesion: 2/3 of its pixels and all of the other
    lesions = np.zeros((3, 6), dtype=bool)
    lesions[[0, 1, 2], [0, 1, 2]] = lesions[0, 5] = True
    found = lesions.astype(float)
    found[2, 2] = -1.0
    assert aupro([found], [lesions], 0.3) == pytest.approx((2 / 3 + 1) / 2)


def test_aupro_is_undefined_without_a_lesion_or_a_normal_pixel() -> None:
    image, mask = np.random.default_rng(0).random((4, 4)), np.eye(4)
    assert math.isnan(aupro([image], [0 * mask]))
    assert math.isnan(aupro([image], [np.ones((4, 4))]))
    with pytest.raises(ValueError, match="map"):
        aupro([np.where(mask, np.nan, image)], [mask])


def naive_upsampled(token_map: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Linear between the centers of the cells, constant beyond the outermost, axis by axis."""
    picture = token_map
    for axis, (pixels, cells) in enumerate(zip(size, token_map.shape, strict=True)):
        places = (np.arange(pixels) + 0.5) * cells / pixels - 0.5
        lines = np.moveaxis(picture, axis, -1)
        resized = [np.interp(places, np.arange(cells), line) for line in lines]
        picture = np.moveaxis(np.array(resized), -1, axis)
    return picture


def random_maps(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def lesion(size: tuple[int, int] = SIZE) -> np.ndarray:
    truth = np.zeros(size, dtype=bool)
    truth[5:8, 1:3] = True
    return truth


def pair_counting_auc(truth: np.ndarray, heat: np.ndarray) -> float:
    inside, outside = heat[truth], heat[~truth]
    return float(np.mean([(a > b) + 0.5 * (a == b) for a in inside for b in outside]))


@pytest.mark.parametrize("seed", range(3))
def test_row_equals_loops(seed: int) -> None:
    maps = {
        name: random_maps(12, seed=10 * seed + number)
        for number, name in enumerate(("fused", "eq_51"))
    }
    row = localization_row(maps, lesion(), GRID)
    assert sorted(row) == [
        "pixel_auroc_eq_51",
        "pixel_auroc_fused",
        "pointing_eq_51",
        "pointing_fused",
    ]
    for name, token_map in maps.items():
        heat = upsampled(token_map, GRID, SIZE)
        naive = naive_upsampled(token_map.numpy().reshape(GRID), SIZE)
        np.testing.assert_allclose(heat, naive, atol=1e-6)
        assert row[f"pixel_auroc_{name}"] == pytest.approx(pair_counting_auc(lesion(), heat))
        hottest = heat == heat.max()
        assert row[f"pointing_{name}"] == pytest.approx((hottest & lesion()).sum() / hottest.sum())


@pytest.mark.parametrize("truth", [None, np.zeros(SIZE, dtype=bool), np.ones(SIZE, dtype=bool)])
def test_undefined_rows_are_empty(truth: np.ndarray | None) -> None:
    assert localization_row({"fused": random_maps(12)}, truth, GRID) == {}
