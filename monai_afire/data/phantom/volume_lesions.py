# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lesions of the phantom's volumes: each changes the image of the healthy chest and reports where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import distance_transform_edt, gaussian_filter

from monai_afire.data.phantom.lesions import Lesion
from monai_afire.data.phantom.volume_grid import VolumeGrid


@dataclass
class VolumeScene:
    """A chest that is being drawn."""

    grid: VolumeGrid
    image: np.ndarray
    organs: dict[str, np.ndarray]
    rng: np.random.Generator

    def pick_lung(self) -> np.ndarray:
        """Coverage of one lung."""
        return self.organs["lung_right" if self.rng.random() < 0.5 else "lung_left"]

    def pick_place(self, lung: np.ndarray, margin: float) -> np.ndarray:
        """Coordinates ``(3,)`` (mm) of a place at least ``margin`` mm inside a lung where it is wide enough."""
        depth = distance_transform_edt(lung > 0.5, sampling=self.grid.voxel_size)
        inside = np.flatnonzero(depth >= min(margin, 0.8 * float(depth.max())))
        place = np.unravel_index(int(inside[self.rng.integers(len(inside))]), self.grid.shape)
        return np.array([np.broadcast_to(axis, self.grid.shape)[place] for axis in self.grid.places])

    def paint(self, coverage: np.ndarray, value: float) -> None:
        """Mix a value in Hounsfield units into the image."""
        self.image += coverage * (value - self.image)

    def distance(self, place: np.ndarray, stretch: np.ndarray | float = 1.0) -> np.ndarray:
        """Distance (mm) of each voxel to a place, its axes divided by factors."""
        factors = np.broadcast_to(stretch, 3)
        squares = [((axis - place[i]) / factors[i]) ** 2 for i, axis in enumerate(self.grid.places)]
        return np.sqrt(squares[0] + squares[1] + squares[2])


def _nodule(scene: VolumeScene) -> np.ndarray:
    """A ball of soft tissue."""
    radius = float(scene.rng.uniform(9.0, 18.0))
    place = scene.pick_place(scene.pick_lung(), radius)
    edge = float(scene.grid.voxel_size.mean())
    stretch = scene.rng.uniform(0.85, 1.15, 3)
    coverage = np.clip((radius - scene.distance(place, stretch)) / edge + 0.5, 0.0, 1.0)
    scene.paint(coverage, float(scene.rng.uniform(0.0, 60.0)))
    return coverage


def _consolidation(scene: VolumeScene) -> np.ndarray:
    """A region where fluid replaces the air, with a fuzzy edge; it ends at the border of the lung."""
    lung = scene.pick_lung()
    radius = float(scene.rng.uniform(20.0, 42.0))
    distance = scene.distance(scene.pick_place(lung, 18.0), scene.rng.uniform(0.75, 1.3, 3)) / radius
    rough = gaussian_filter(scene.rng.standard_normal(scene.grid.shape), 9.0 / scene.grid.voxel_size)
    rough /= max(float(rough.std()), 1e-6)
    coverage = lung / (1.0 + np.exp(-6.0 * (1.0 - distance + 0.2 * np.clip(rough, -2.0, 2.0))))
    scene.paint(float(scene.rng.uniform(0.6, 0.95)) * coverage, 20.0)
    return coverage


def _effusion(scene: VolumeScene) -> np.ndarray:
    """Fluid at the back of the pleural space, below all in its lower half, of a patient who lies."""
    lung, anatomy = scene.pick_lung(), scene.grid.anatomy
    _, y, z = scene.grid.places
    height = float(scene.rng.uniform(0.25, 0.55)) * 0.5 * anatomy.patient.thickness
    low = np.clip((y - anatomy.top) / (anatomy.bottom - anatomy.top), 0.0, 1.0)
    surface = -0.36 * anatomy.patient.thickness + height * low**0.7
    coverage = lung * np.clip((surface - z) / scene.grid.voxel_size[1] + 0.5, 0.0, 1.0)
    scene.paint(coverage, 12.0)
    return coverage


def _pneumothorax(scene: VolumeScene) -> np.ndarray:
    """Air without vessels in front of the lung of a patient who lies, which has moved back."""
    lung, patient = scene.pick_lung(), scene.grid.anatomy.patient
    inside = np.flatnonzero((lung > 0.5).any(axis=(0, 2)))
    front = float(scene.grid.places[2][0, inside[-1], 0])
    depth = float(scene.rng.uniform(0.14, 0.30)) * patient.thickness
    coverage = lung * np.clip((scene.grid.places[2] - front + depth) / scene.grid.voxel_size[1] + 0.5, 0.0, 1.0)
    scene.paint(coverage, -995.0)
    scene.image += 90.0 * lung * (1.0 - coverage)  # less air is left in the rest
    return coverage


def _cardiomegaly(scene: VolumeScene) -> np.ndarray:
    """The heart of the anatomy is large already: the lesion is the heart."""
    return scene.organs["heart"]


_PAINTERS: dict[str, Callable[[VolumeScene], np.ndarray]] = {
    "nodule": _nodule,
    "consolidation": _consolidation,
    "effusion": _effusion,
    "cardiomegaly": _cardiomegaly,
    "pneumothorax": _pneumothorax,
}


def add_volume_lesion(kind: str, scene: VolumeScene) -> Lesion:
    """Change the image of a scene by one lesion of random place, size and contrast."""
    coverage = _PAINTERS[kind](scene)
    return Lesion(kind, coverage >= min(0.5, float(coverage.max())))
