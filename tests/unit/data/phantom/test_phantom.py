# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The drawing of the chest phantom: primitives against naive versions, ground truth against anatomy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import label

from monai_afire.data.phantom import (
    LANDMARK_NAMES,
    LESION_KINDS,
    ORGAN_NAMES,
    ChestPhantom,
    draw_chest_phantom,
)
from monai_afire.data.phantom.drawing import (
    dome,
    fill_polygon,
    splat_points,
)

SEEDS = range(8)


@pytest.fixture(scope="module")
def normals() -> list[ChestPhantom]:
    return [draw_chest_phantom(seed, 128) for seed in SEEDS]


def _organ(phantom: ChestPhantom, name: str) -> np.ndarray:
    return phantom.organs[ORGAN_NAMES.index(name)].astype(bool)


def _landmark(phantom: ChestPhantom, name: str) -> np.ndarray:
    return phantom.landmarks[LANDMARK_NAMES.index(name)]


def _near(mask: np.ndarray, point: np.ndarray, distance: float) -> bool:
    rows, columns = np.nonzero(mask)
    return bool(np.hypot(rows - point[0], columns - point[1]).min() <= distance)


def _cardiothoracic_ratio(phantom: ChestPhantom) -> float:
    def width(mask: np.ndarray) -> int:
        return int(np.ptp(np.flatnonzero(mask.any(axis=0)))) + 1

    return width(_organ(phantom, "heart")) / width(
        _organ(phantom, "lung_right") | _organ(phantom, "lung_left")
    )


# primitives


def _naive_fill(points: np.ndarray, size: int, oversample: int = 16) -> np.ndarray:
    """Even-odd rule at many points of every pixel."""
    axis = (np.arange(size * oversample) + 0.5) / oversample
    x, y = np.meshgrid(axis, axis)
    inside = np.zeros(x.shape, dtype=bool)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 <= y) != (y1 <= y)) & (x < x0 + (y - y0) / (y1 - y0) * (x1 - x0))
    return inside.reshape(size, oversample, size, oversample).mean(axis=(1, 3))


@pytest.mark.parametrize("seed", range(6))
def test_fill_polygon_equals_point_counting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0.0, 2.0 * np.pi, 9))
    radius = rng.uniform(3.0, 11.0, 9)  # reaches over the edges of the picture
    points = (
        8.0
        + rng.uniform(-2, 2, 2)
        + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    )
    difference = np.abs(fill_polygon(points, 16, 16) - _naive_fill(points, 16))
    assert difference.max() < 0.13
    assert difference.mean() < 0.01


def test_splat_points_equals_loop() -> None:
    rng = np.random.default_rng(0)
    points, weights = rng.uniform(-2.0, 8.0, (50, 2)), rng.random(50)
    expected = np.zeros((5, 6))
    for (x, y), weight in zip(points, weights, strict=True):
        for row in range(5):
            for column in range(6):
                share = max(1 - abs(x - column - 0.5), 0.0) * max(1 - abs(y - row - 0.5), 0.0)
                expected[row, column] += weight * share
    np.testing.assert_allclose(splat_points(points, weights, 5, 6), expected, atol=1e-6)


def test_dome_is_a_half_disc_across_a_band() -> None:
    coverage = np.zeros((20, 20), np.float32)
    coverage[:, 5:15] = 1.0  # runs over the upper and the lower edge of the picture: no fall there
    thickness = dome(coverage, 5.0)
    expected = np.sqrt(1.0 - (1.0 - np.array([0.5, 1.5, 2.5, 3.5, 4.5]) / 5.0) ** 2)
    np.testing.assert_allclose(thickness[:, 5:10], np.tile(expected, (20, 1)), atol=1e-6)
    np.testing.assert_allclose(thickness, thickness[:, ::-1], atol=1e-6)
    assert dome(np.zeros((4, 4), np.float32), 2.0).max() == 0.0


# healthy patients


def test_organs_lie_as_in_a_chest(normals: list[ChestPhantom]) -> None:
    for phantom in normals:
        right, left, heart = (
            _organ(phantom, name) for name in ("lung_right", "lung_left", "heart")
        )
        assert not (right & left).any()
        assert not (heart & (right | left)).any()
        columns = [np.nonzero(mask)[1].mean() for mask in (right, heart, left)]
        # the patient's right is at the left of the picture
        assert columns[0] < columns[1] < columns[2]
        middle = 0.5 * (columns[0] + columns[2])
        assert columns[1] > middle  # most of the heart lies on the patient's left
        for mask in (right, left):
            assert 0.05 < mask.mean() < 0.25
            pieces, _ = label(mask)
            assert np.bincount(pieces.ravel())[1:].max() > 0.98 * mask.sum()
        for side, lung in (("right", right), ("left", left)):
            clavicle = _organ(phantom, f"clavicle_{side}")
            assert clavicle.any()
            assert np.nonzero(clavicle)[0].mean() < np.nonzero(lung)[0].mean() - 15
        assert 0.36 < _cardiothoracic_ratio(phantom) < 0.5


@pytest.mark.parametrize("size", [64, 224])
def test_landmarks_lie_on_their_organs(size: int) -> None:
    for seed in SEEDS:
        phantom = draw_chest_phantom(seed, size)
        assert (phantom.landmarks >= 0).all()
        assert (phantom.landmarks <= size - 1).all()
        pixel = size / 128
        for side in ("right", "left"):
            lung = _organ(phantom, f"lung_{side}")
            for name in ("lung_apex", "costophrenic_angle", "diaphragm_dome"):
                assert _near(lung, _landmark(phantom, f"{name}_{side}"), 2.0 + pixel), (seed, name)
            assert _near(lung, _landmark(phantom, f"hilum_{side}"), 6 * pixel)
            assert _near(
                _organ(phantom, f"clavicle_{side}"),
                _landmark(phantom, f"clavicle_head_{side}"),
                1.5,
            )
            apex, angle = (
                _landmark(phantom, f"lung_apex_{side}"),
                _landmark(phantom, f"costophrenic_angle_{side}"),
            )
            rows = np.flatnonzero(lung.any(axis=1))
            assert abs(rows[0] - apex[0]) < 2 * pixel + 1.5
            assert abs(rows[-1] - angle[0]) < 3 * pixel + 1.5
        heart = _organ(phantom, "heart")
        columns = np.flatnonzero(heart.any(axis=0))
        assert abs(_landmark(phantom, "right_heart_border")[1] - columns[0]) < 2 * pixel + 0.5
        assert abs(_landmark(phantom, "cardiac_apex")[1] - columns[-1]) < 2 * pixel + 0.5
        assert _landmark(phantom, "trachea_top")[0] < _landmark(phantom, "carina")[0]
        assert _landmark(phantom, "aortic_knob")[0] < _landmark(phantom, "carina")[0]


@pytest.mark.parametrize("kind", [(), ("nodule", "effusion"), ("consolidation", "pneumothorax")])
def test_picture_size_does_not_change_the_patient(kind: tuple[str, ...]) -> None:
    for seed in range(3):
        small, large = draw_chest_phantom(seed, 112, kind), draw_chest_phantom(seed, 224, kind)
        mean = large.image.reshape(1, 112, 2, 112, 2).mean(axis=(2, 4))
        # Noise and blur of one pixel differ, the anatomy does not.
        assert np.abs(mean - small.image).mean() < 0.02
        np.testing.assert_allclose((large.landmarks + 0.5) / 2, small.landmarks + 0.5, atol=1e-3)
        np.testing.assert_allclose(large.boxes / 2, small.boxes, atol=2.0)


# The mean of each of 8x8 blocks, rounded; a change of the drawing needs new numbers and a new PHANTOM_VERSION.
FINGERPRINTS: dict[tuple[int, tuple[str, ...]], list[list[float]]] = {
    (0, ()): [
        [0.0579, 0.1000, 0.2213, 0.5063, 0.5645, 0.2790, 0.0979, 0.0549],
        [0.4922, 0.5812, 0.5875, 0.6024, 0.6441, 0.5627, 0.5597, 0.4681],
        [0.7409, 0.7848, 0.5483, 0.5968, 0.7057, 0.5174, 0.7282, 0.7871],
        [0.4413, 0.7827, 0.5805, 0.6663, 0.7857, 0.6011, 0.7374, 0.6431],
        [0.2680, 0.7180, 0.5810, 0.6769, 0.8628, 0.6026, 0.6876, 0.4096],
        [0.2744, 0.7673, 0.7964, 0.8209, 0.9211, 0.8035, 0.7206, 0.3655],
        [0.3555, 0.9121, 0.9470, 0.9483, 0.9493, 0.9237, 0.8996, 0.4173],
        [0.2476, 0.5656, 0.5881, 0.6019, 0.6122, 0.6120, 0.6093, 0.3072],
    ],
    (1, ("nodule", "consolidation", "effusion", "pneumothorax")): [
        [0.0012, 0.0210, 0.0981, 0.3152, 0.2955, 0.0804, 0.0122, 0.0005],
        [0.1867, 0.3464, 0.3422, 0.4093, 0.3831, 0.3540, 0.3384, 0.2277],
        [0.3673, 0.6229, 0.3326, 0.4736, 0.4256, 0.4141, 0.6550, 0.5366],
        [0.2917, 0.6357, 0.4015, 0.5673, 0.5627, 0.5324, 0.7307, 0.3703],
        [0.2161, 0.5600, 0.3808, 0.5792, 0.6619, 0.4147, 0.6227, 0.2568],
        [0.2124, 0.5647, 0.4341, 0.6705, 0.8438, 0.7267, 0.7182, 0.2013],
        [0.2686, 0.7946, 0.8882, 0.8838, 0.8956, 0.8706, 0.7859, 0.1970],
        [0.2972, 0.8110, 0.8414, 0.8541, 0.8556, 0.8559, 0.8003, 0.1966],
    ],
}


@pytest.mark.parametrize(("seed", "lesions"), FINGERPRINTS)
def test_pictures_are_the_same_on_every_platform(seed: int, lesions: tuple[str, ...]) -> None:
    image = draw_chest_phantom(seed, 128, lesions).image[0]
    np.testing.assert_allclose(
        image.reshape(8, 16, 8, 16).mean(axis=(1, 3)), FINGERPRINTS[seed, lesions], atol=1e-3
    )


# lesions


@pytest.mark.parametrize("kind", LESION_KINDS)
def test_lesions_have_mask_box_and_label(kind: str) -> None:
    for seed in SEEDS:
        phantom, healthy = draw_chest_phantom(seed, 128, [kind]), draw_chest_phantom(seed, 128)
        (lesion,) = phantom.lesions
        assert lesion.kind == kind
        assert lesion.mask.sum() >= 8
        assert phantom.label.tolist() == [float(name == kind) for name in LESION_KINDS]
        np.testing.assert_array_equal(phantom.lesion_mask[0], lesion.mask)
        x, y, width, height = lesion.box
        assert lesion.mask[y : y + height, x : x + width].sum() == lesion.mask.sum()
        for line in (
            lesion.mask[y],
            lesion.mask[y + height - 1],
            lesion.mask[:, x],
            lesion.mask[:, x + width - 1],
        ):
            assert line.any()
        np.testing.assert_array_equal(phantom.boxes, [lesion.box])
        if kind != "cardiomegaly":
            np.testing.assert_array_equal(phantom.organs, healthy.organs)
            lungs = _organ(phantom, "lung_right") | _organ(phantom, "lung_left")
            assert (lesion.mask & lungs).sum() > 0.8 * lesion.mask.sum()
            change = (phantom.image - healthy.image)[0]
            sign = -1.0 if kind == "pneumothorax" else 1.0
            assert sign * change[lesion.mask].mean() > 0.01
            assert (
                np.abs(change[lesion.mask]).mean()
                > 3 * np.abs(change[~lesion.mask & ~lungs]).mean()
            )


def test_effusion_lies_at_the_base_of_one_lung() -> None:
    for seed in SEEDS:
        phantom = draw_chest_phantom(seed, 128, ["effusion"])
        mask = phantom.lesions[0].mask
        sides = [(mask & _organ(phantom, name)).sum() for name in ("lung_right", "lung_left")]
        assert min(sides) == 0
        side = "right" if sides[0] else "left"
        lung = _organ(phantom, f"lung_{side}")
        assert _near(mask, _landmark(phantom, f"costophrenic_angle_{side}"), 3.5)
        assert np.nonzero(mask)[0].mean() > np.nonzero(lung)[0].mean() + 10
        bottom = np.flatnonzero(lung.any(axis=1))[-1]
        assert mask[bottom - 3].sum() >= 0.8 * lung[bottom - 3].sum() > 0


def test_pneumothorax_follows_the_outer_edge_of_one_lung() -> None:
    for seed in SEEDS:
        phantom = draw_chest_phantom(seed, 128, ["pneumothorax"])
        mask = phantom.lesions[0].mask
        sides = [(mask & _organ(phantom, name)).sum() for name in ("lung_right", "lung_left")]
        assert min(sides) == 0
        side = "right" if sides[0] else "left"
        lung = _organ(phantom, f"lung_{side}")
        assert _near(mask, _landmark(phantom, f"lung_apex_{side}"), 3.0)
        rows = np.flatnonzero(lung.any(axis=1))
        for row in rows[len(rows) // 5 : len(rows) // 2]:
            columns = np.flatnonzero(lung[row])
            outer = columns[0] if side == "right" else columns[-1]
            assert mask[row, outer]
            inner = columns[-1] if side == "right" else columns[0]
            assert not mask[row, inner]


def test_cardiomegaly_raises_the_cardiothoracic_ratio() -> None:
    for seed in SEEDS:
        healthy, phantom = (
            draw_chest_phantom(seed, 128),
            draw_chest_phantom(seed, 128, ["cardiomegaly"]),
        )
        assert _cardiothoracic_ratio(healthy) < 0.5 < _cardiothoracic_ratio(phantom)
        np.testing.assert_array_equal(phantom.lesions[0].mask, _organ(phantom, "heart"))


@pytest.mark.parametrize("size", [32, 33, 65])
def test_small_and_odd_sizes(size: int) -> None:
    for seed in range(4):
        phantom = draw_chest_phantom(seed, size, LESION_KINDS)
        assert np.isfinite(phantom.image).all()
        assert phantom.organs.reshape(5, -1).any(axis=1).all()


def test_sizes_and_kinds_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="image_size"):
        draw_chest_phantom(0, 16)
    with pytest.raises(ValueError, match="fracture"):
        draw_chest_phantom(0, lesions=["fracture"])
