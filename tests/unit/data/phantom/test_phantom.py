# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The drawing of the chest phantom: what it looks like, and that its ground truth lies where the anatomy is."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.data.phantom import (
    LANDMARK_NAMES,
    LESION_KINDS,
    ORGAN_NAMES,
    ChestPhantom,
    draw_chest_phantom,
)

SEEDS = range(5)


def _organ(phantom: ChestPhantom, name: str) -> np.ndarray:
    return phantom.organs[ORGAN_NAMES.index(name)].astype(bool)


def _landmark(phantom: ChestPhantom, name: str) -> np.ndarray:
    return phantom.landmarks[LANDMARK_NAMES.index(name)]


def _near(mask: np.ndarray, point: np.ndarray, distance: float) -> bool:
    rows, columns = np.nonzero(mask)
    return bool(np.hypot(rows - point[0], columns - point[1]).min() <= distance)


def _cardiothoracic_ratio(phantom: ChestPhantom) -> float:
    lungs = _organ(phantom, "lung_right") | _organ(phantom, "lung_left")
    heart, chest = (np.flatnonzero(each.any(axis=0)) for each in (_organ(phantom, "heart"), lungs))
    return (np.ptp(heart) + 1) / (np.ptp(chest) + 1)


# healthy patients


@pytest.mark.parametrize("size", [64, 224])
def test_landmarks_lie_on_their_organs(size: int) -> None:
    pixel = size / 128
    for seed in SEEDS:
        phantom = draw_chest_phantom(seed, size)
        assert ((phantom.landmarks >= 0) & (phantom.landmarks <= size - 1)).all()
        for side in ("right", "left"):
            lung, clavicle = _organ(phantom, f"lung_{side}"), _organ(phantom, f"clavicle_{side}")
            for name in ("lung_apex", "costophrenic_angle", "diaphragm_dome"):
                assert _near(lung, _landmark(phantom, f"{name}_{side}"), 2.0 + pixel), (seed, name)
            assert _near(lung, _landmark(phantom, f"hilum_{side}"), 6 * pixel)
            assert _near(clavicle, _landmark(phantom, f"clavicle_head_{side}"), 1.5)
            rows = np.flatnonzero(lung.any(axis=1))
            apex = _landmark(phantom, f"lung_apex_{side}")[0]
            angle = _landmark(phantom, f"costophrenic_angle_{side}")[0]
            assert abs(rows[0] - apex) < 2 * pixel + 1.5
            assert abs(rows[-1] - angle) < 3 * pixel + 1.5
        heart = _organ(phantom, "heart")
        columns = np.flatnonzero(heart.any(axis=0))
        assert abs(_landmark(phantom, "right_heart_border")[1] - columns[0]) < 2 * pixel + 0.5
        assert abs(_landmark(phantom, "cardiac_apex")[1] - columns[-1]) < 2 * pixel + 0.5
        assert _landmark(phantom, "trachea_top")[0] < _landmark(phantom, "carina")[0]
        assert _landmark(phantom, "aortic_knob")[0] < _landmark(phantom, "carina")[0]
        # the patient's right is at the left of the picture, most of the heart on the other side
        middles = [
            np.nonzero(_organ(phantom, f"lung_{side}"))[1].mean() for side in ("right", "left")
        ]
        assert np.mean(middles) < np.nonzero(heart)[1].mean() < middles[1]


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


# of one lung
NEAR = {"effusion": "costophrenic_angle", "pneumothorax": "lung_apex"}


@pytest.mark.parametrize("kind", LESION_KINDS)
def test_lesions_have_mask_box_and_label(kind: str) -> None:
    for seed in SEEDS:
        phantom, healthy = draw_chest_phantom(seed, 128, [kind]), draw_chest_phantom(seed, 128)
        (lesion,) = phantom.lesions
        mask = lesion.mask
        assert lesion.kind == kind
        assert mask.sum() >= 8
        assert phantom.label.tolist() == [float(name == kind) for name in LESION_KINDS]
        np.testing.assert_array_equal(phantom.lesion_mask[0], mask)
        rows, columns = np.nonzero(mask)
        tight = [columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
        np.testing.assert_array_equal(phantom.boxes, [tight])
        if kind == "cardiomegaly":
            assert _cardiothoracic_ratio(healthy) < 0.5 < _cardiothoracic_ratio(phantom)
            np.testing.assert_array_equal(mask, _organ(phantom, "heart"))
            continue
        np.testing.assert_array_equal(phantom.organs, healthy.organs)
        lungs = [_organ(phantom, f"lung_{side}") for side in ("right", "left")]
        inside = [(mask & lung).sum() for lung in lungs]
        assert sum(inside) > 0.8 * mask.sum()
        change = (phantom.image - healthy.image)[0]
        sign = -1.0 if kind == "pneumothorax" else 1.0
        assert sign * change[mask].mean() > 0.01
        elsewhere = ~(mask | lungs[0] | lungs[1])
        assert np.abs(change[mask]).mean() > 3 * np.abs(change[elsewhere]).mean()
        if kind in NEAR:
            side = "right" if inside[0] else "left"
            assert min(inside) == 0
            assert _near(mask, _landmark(phantom, f"{NEAR[kind]}_{side}"), 3.5)


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
