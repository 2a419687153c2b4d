# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps of landmarks: their values, and that they follow the anatomy through MONAI's transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.data import MetaTensor, list_data_collate
from monai.transforms import (
    CenterSpatialCropd,
    Compose,
    Flipd,
    RandAffined,
    RandRotate90d,
    Resized,
    SpatialPadd,
)

from monai_afire.apps.evaluation.landmark_metrics import rescaled_positions
from monai_afire.losses import HeatmapLoss
from monai_afire.transforms import LandmarkHeatmap, LandmarkHeatmapd
from monai_afire.transforms.landmark_heatmap import pixels_of_file

SPACINGS = {
    "of a file": np.array([[0.0, -0.2, 0, 30], [-0.3, 0, 0, 7], [0, 0, 1, 0], [0, 0, 0, 1]]),
    "default": np.eye(4),
}


def naive_heatmap(
    point: tuple[float, float], size: tuple[int, int], sigma: float, window: int
) -> np.ndarray:
    row, column = (math.floor(position + 0.5) for position in point)
    if not (0 <= row < size[0] and 0 <= column < size[1]):
        return np.zeros(size)
    down, right = (n - place for n, place in zip(np.indices(size), (row, column), strict=True))
    is_near = np.maximum(abs(down), abs(right)) <= window // 2
    return is_near * np.exp(-(down**2 + right**2) / (2 * sigma**2))


def dot(point: tuple[float, float], size: tuple[int, int], affine: np.ndarray) -> MetaTensor:
    """A picture of a disc at a landmark, as if it were loaded from a file."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    disc = np.exp(-((rows - point[0]) ** 2 + (columns - point[1]) ** 2) / 18)
    meta = {
        "affine": torch.tensor(affine),
        "original_affine": affine.copy(),
        "filename_or_obj": "dot.png",
    }
    return MetaTensor(torch.tensor(disc, dtype=torch.float32)[None], meta=meta)


def center(picture: torch.Tensor) -> np.ndarray:
    values = np.asarray(picture, dtype=float)[0]
    rows, columns = np.mgrid[: values.shape[0], : values.shape[1]]
    return np.array([(values * rows).sum(), (values * columns).sum()]) / values.sum()


def peak(heatmap: torch.Tensor) -> np.ndarray:
    return np.array(np.unravel_index(int(heatmap.argmax()), tuple(heatmap.shape)))


# ---- values


@given(
    st.lists(st.tuples(st.floats(-6, 46), st.floats(-6, 56)), min_size=1, max_size=4),
    st.floats(0.3, 6),
    st.integers(0, 8).map(lambda half: 2 * half + 1),
)
@settings(max_examples=40)
def test_heatmaps_are_the_formula(
    points: list[tuple[float, float]], sigma: float, window: int
) -> None:
    heatmap, valid = LandmarkHeatmap(sigma, window)(points, (40, 50))
    assert heatmap.dtype == torch.float32
    assert heatmap.shape == (len(points), 40, 50)
    for drawn, known, point in zip(heatmap, valid, points, strict=True):
        expected = naive_heatmap(point, (40, 50), sigma, window)
        assert np.allclose(drawn.numpy(), expected, atol=1e-6)
        assert bool(known) == (expected.max() == 1) == (float(drawn.max()) == 1)


@pytest.mark.parametrize("unknown", [None, [3.0, None], [float("nan"), 3.0]])
def test_landmark_that_is_not_known_is_not_learned(unknown: Any) -> None:
    heatmap, valid = LandmarkHeatmap()([[3.0, 3.0], unknown], (40, 50))
    assert valid.tolist() == [True, False]
    assert heatmap[0].isfinite().all()
    pred = torch.rand(1, 2, 40, 50, requires_grad=True)
    HeatmapLoss()(pred, heatmap[None]).backward()
    assert pred.grad[0, 0].all()
    assert not pred.grad[0, 1].any()


# ---- items


def test_item_gets_maps_flags_and_landmarks_that_collate() -> None:
    image = dot((8, 9), (32, 40), np.eye(4))
    items = [{"image": image, "landmarks": [point, None]} for point in ([8, 9], [1, 2])]
    batch = list_data_collate([LandmarkHeatmapd()(item) for item in items])
    assert items[0]["landmarks"] == [[8, 9], None]
    assert isinstance(batch["heatmap"], MetaTensor)
    assert batch["heatmap"].shape == (2, 2, 32, 40)
    assert batch["landmark_valid"].tolist() == [[True, False], [True, False]]
    assert batch["landmarks"][:, 0].tolist() == [[8, 9], [1, 2]]
    assert batch["landmarks"][:, 1].isnan().all()


@pytest.mark.parametrize("point", [[34, 9], [-1, -1], [32, 3], [-0.6, 3]])
def test_landmark_outside_of_the_files_picture_is_refused(point: list[float]) -> None:
    """Columns before rows, and -1 for what is not known, would be learned as absent."""
    resize, draw = Resized("image", (64, 64)), LandmarkHeatmapd()
    image = dot((8, 9), (32, 40), np.eye(4))
    draw(resize({"image": image, "landmarks": [[8, 9], [9, 34]]}))
    with pytest.raises(ValueError, match=r"dot\.png: landmark 1"):
        draw(resize({"image": image, "landmarks": [[8, 9], point]}))


# ---- along with the image


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("size", [(48, 64), (300, 100)])
def test_landmarks_follow_resizing(size: tuple[int, int], spacing: str) -> None:
    points = np.random.default_rng(0).uniform(0, 95, (9, 2))
    image = Resized("image", size)({"image": dot((8, 9), (96, 128), SPACINGS[spacing])})["image"]
    expected = rescaled_positions(torch.tensor(points), (96, 128), size)
    assert np.allclose(pixels_of_file(points, image), expected, atol=1e-6)


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("first", ["transforms", "heatmap"])
def test_landmarks_follow_the_anatomy_through_random_transforms(first: str, spacing: str) -> None:
    keys = ["image"] if first == "transforms" else ["image", "heatmap"]
    affine: dict[str, Any] = {"rotate_range": 0.5, "translate_range": 8, "scale_range": 0.2}
    moved = [
        Flipd(keys, 1),
        RandRotate90d(keys, prob=0.5),
        RandAffined(keys, prob=1.0, padding_mode="zeros", **affine),
        SpatialPadd(keys, (120, 130)),
        CenterSpatialCropd(keys, (110, 100)),
    ]
    resize, draw = Resized("image", (100, 90)), LandmarkHeatmapd()
    transform = Compose([resize, *moved, draw] if first == "transforms" else [resize, draw, *moved])
    transform.set_random_state(3)
    generator = np.random.default_rng(1)
    for _ in range(6):
        point = tuple(generator.uniform(50, 80, 2))
        image = dot(point, (130, 140), SPACINGS[spacing])
        drawn = transform({"image": image, "landmarks": [point]})
        assert drawn["landmark_valid"].all()
        assert np.abs(peak(drawn["heatmap"][0]) - center(drawn["image"])).max() < 1.1
        assert float(drawn["heatmap"].max()) > 0.6


def test_image_without_metadata_is_the_picture_of_the_file() -> None:
    plain = torch.zeros(1, 32, 40)
    for image in (plain, MetaTensor(plain, affine=torch.tensor(SPACINGS["of a file"]))):
        drawn = LandmarkHeatmapd()({"image": image, "landmarks": [[8, 9]]})
        assert peak(drawn["heatmap"][0]).tolist() == [8, 9]
