# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Token maps as pictures, and how well they point at lesions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from monai_afire.apps.evaluation.localization import aupro, localization_row, map_aupro, upsampled

GRID, SIZE = (3, 4), (9, 8)


def naive_upsampled(token_map: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Linear between the centers of the cells, constant beyond the outermost, pixel by pixel."""
    picture = np.zeros(size)
    for place in np.ndindex(*size):
        corners = []
        for pixel, pixels, cells in zip(place, size, token_map.shape, strict=True):
            position = min(max((pixel + 0.5) * cells / pixels - 0.5, 0), cells - 1)
            low = min(math.floor(position), cells - 1)
            corners.append(((low, 1 - (position - low)), (min(low + 1, cells - 1), position - low)))
        (top, bottom), (left, right) = corners
        for row, row_weight in (top, bottom):
            for column, column_weight in (left, right):
                picture[place] += row_weight * column_weight * token_map[row, column]
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


@pytest.mark.parametrize(
    ("grid", "size"), [((3, 4), (9, 8)), ((2, 2), (7, 5)), ((1, 3), (4, 6)), ((4, 4), (4, 4))]
)
def test_maps_are_interpolated_linearly(grid: tuple[int, int], size: tuple[int, int]) -> None:
    token_map = random_maps(math.prod(grid))
    expected = naive_upsampled(token_map.numpy().reshape(grid), size)
    np.testing.assert_allclose(upsampled(token_map, grid, size), expected, atol=1e-6)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_leading_axes_are_kept(leading: tuple[int, ...]) -> None:
    maps = random_maps(*leading, 12).to(torch.float16)
    pictures = upsampled(maps, GRID, SIZE)
    assert pictures.shape == (*leading, *SIZE)
    assert pictures.dtype == np.float32
    for index in np.ndindex(*leading):
        np.testing.assert_array_equal(pictures[index], upsampled(maps[index], GRID, SIZE))


@pytest.mark.parametrize("seed", range(5))
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
        heat = upsampled(token_map, GRID, SIZE)  # compared with a naive one above
        assert row[f"pixel_auroc_{name}"] == pytest.approx(pair_counting_auc(lesion(), heat))
        hottest = heat == heat.max()
        assert row[f"pointing_{name}"] == pytest.approx((hottest & lesion()).sum() / hottest.sum())


def test_row_by_hand() -> None:
    hot, cold = torch.zeros(12), torch.zeros(12)
    hot[8] = 1.0  # row 2, column 0 of the grid: rows 6 to 8, columns 0 and 1 of the picture
    truth = np.zeros(SIZE, dtype=bool)
    truth[7:9, 0:1] = True
    row = localization_row({"hot": hot, "cold": cold}, truth, GRID)
    assert row["pointing_hot"] == 1.0
    assert row["pixel_auroc_hot"] == 1.0
    assert row["pixel_auroc_cold"] == 0.5
    assert row["pointing_cold"] == pytest.approx(2 / 72)  # all pixels are the hottest


@pytest.mark.parametrize("truth", [None, np.zeros(SIZE, dtype=bool), np.ones(SIZE, dtype=bool)])
def test_undefined_rows_are_empty(truth: np.ndarray | None) -> None:
    assert localization_row({"fused": random_maps(12)}, truth, GRID) == {}


@pytest.mark.parametrize("value", [1, 7, 255])
def test_any_number_but_zero_is_abnormal(value: int) -> None:
    maps = {"fused": random_maps(12)}
    numbers = lesion().astype(np.uint8) * value
    assert localization_row(maps, numbers, GRID) == localization_row(maps, lesion(), GRID)


def test_aupro_of_token_maps() -> None:
    maps = (random_maps(3, 12) * 9).round()  # quarters of whole numbers are exact, and so are ties
    truth = np.zeros((6, 8), dtype=bool)
    truth[4:6, 1:3] = True
    truths = [truth, np.zeros_like(truth), truth[:, ::-1]]
    expected = aupro([naive_upsampled(m.numpy().reshape(GRID), (6, 8)) for m in maps], truths)
    assert 0 < expected < 1
    assert map_aupro(maps, truths, GRID) == pytest.approx(expected, abs=1e-12)


def test_aupro_without_a_lesion_is_undefined() -> None:
    assert math.isnan(map_aupro(torch.zeros(0, 12), [], GRID))
    assert math.isnan(map_aupro(random_maps(1, 12), [np.zeros(SIZE, dtype=bool)], GRID))
