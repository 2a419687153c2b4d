# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.data.phantom.anatomy import build_anatomy, sample_patient
from monai_afire.data.phantom.vessels import vessel_tree

# vessels of each generation and points along each
GENERATIONS = ((18, 72), (64, 48), (150, 36), (240, 24))


def _by_generation(values: np.ndarray) -> list[np.ndarray]:
    """Values of all points as one array (vessels, points, ...) per generation."""
    ends = np.cumsum([vessels * points for vessels, points in GENERATIONS])
    parts = np.split(values, ends[:-1])
    return [
        part.reshape(*shape, *values.shape[1:])
        for part, shape in zip(parts, GENERATIONS, strict=True)
    ]


@pytest.mark.parametrize(("side", "hilum"), [(-1, "hilum_right"), (1, "hilum_left")])
def test_vessels_branch_from_the_hilum_and_become_thinner(side: int, hilum: str) -> None:
    anatomy = build_anatomy(sample_patient(np.random.default_rng(3)))
    points, radii, volumes = map(
        _by_generation, vessel_tree(anatomy, side, np.random.default_rng(0))
    )
    away = points[0] - np.array(anatomy.landmarks[hilum][:2])
    assert np.linalg.norm(away[:, 0], axis=1).max() < 50
    assert (side * away[:, -1, 0]).mean() > 30  # they lead outwards, into their own lung
    for generation, (own, radius, volume) in enumerate(zip(points, radii, volumes, strict=True)):
        np.testing.assert_allclose(radius[:, -1] / radius[:, 0], 0.28)
        steps = np.linalg.norm(np.diff(own, axis=1), axis=2)
        np.testing.assert_allclose(volume[:, 1:], np.pi * radius[:, 1:] ** 2 * steps, rtol=1e-6)
        if generation:
            _assert_branches(own, radius, points[generation - 1], radii[generation - 1])


def _assert_branches(
    points: np.ndarray, radius: np.ndarray, parents: np.ndarray, parent_radius: np.ndarray
) -> None:
    """That each vessel begins a step away from a parent's point, 0.5 to 0.8 times as wide, or 0.45 mm."""
    step = np.linalg.norm(points[:, 1] - points[:, 0], axis=1)
    distance = np.linalg.norm(points[:, :1] - parents.reshape(1, -1, 2), axis=2)
    away = np.abs(distance - step[:, None])
    np.testing.assert_allclose(away.min(axis=1), 0.0, atol=1e-9)
    share = radius[:, 0] / parent_radius.reshape(-1)[away.argmin(axis=1)]
    assert (((share > 0.5) & (share < 0.8)) | (radius[:, 0] == 0.45)).all()
