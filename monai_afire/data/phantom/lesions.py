# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lesions of the chest phantom: each changes the path lengths of the healthy chest and reports where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import distance_transform_edt, find_objects

from monai_afire.data.phantom.anatomy import (
    DEPTH,
    ChestAnatomy,
    Projection,
    build_anatomy,
    sample_patient,
)
from monai_afire.data.phantom.drawing import dome, fill_polygon, ribbon_points, splat_points
from monai_afire.data.phantom.phantom_rendering import (
    LUNG_CONTRAST,
    ThicknessMaps,
    organ_masks,
    smooth_noise,
)

LESION_KINDS = ("nodule", "consolidation", "effusion", "cardiomegaly", "pneumothorax")

# Lesions are placed on a grid of fixed size, so that they lie at the same place at every picture size.
_PLANNING_SIZE = 128


@dataclass(frozen=True)
class Lesion:
    """One lesion: its kind, of ``LESION_KINDS``, and its mask, bool ``(H, W)``."""

    kind: str
    mask: np.ndarray

    @property
    def box(self) -> tuple[int, ...]:
        """Tight box of the mask, see :func:`tight_box`."""
        return tight_box(self.mask)


def tight_box(mask: np.ndarray) -> tuple[int, ...]:
    """Smallest box about a mask, ``(x, y, width, height)``; zeros if it is empty."""
    if not mask.any():
        return 0, 0, 0, 0
    [(rows, columns)] = find_objects(mask.astype(np.uint8))
    width, height = columns.stop - columns.start, rows.stop - rows.start
    return columns.start, rows.start, width, height


def draw_anatomy(
    seed: int | np.random.SeedSequence | np.random.Generator, lesions: Sequence[str]
) -> tuple[ChestAnatomy, list[np.random.Generator]]:
    """The anatomy of a seed's patient, and the random numbers of pose, tissue, exposure, noise and lesions."""
    if unknown := set(lesions) - set(LESION_KINDS):
        raise ValueError(f"lesions has {sorted(unknown)}: use kinds of {LESION_KINDS}.")
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**63))
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(seed)
    # One stream for each purpose: a lesion must not change the patient. Not spawn(), which changes its argument.
    streams = [
        np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
        for number in range(6)
    ]
    for_patient, *others = map(np.random.default_rng, streams)
    patient = sample_patient(for_patient)
    if "cardiomegaly" in lesions:
        patient = replace(patient, cardiothoracic_ratio=float(others[-1].uniform(0.54, 0.68)))
    return build_anatomy(patient), others


@dataclass
class Scene:
    """A radiograph that is being drawn."""

    anatomy: ChestAnatomy
    projection: Projection
    masks: dict[str, np.ndarray]
    maps: ThicknessMaps
    rng: np.random.Generator

    def lung(self, side: str) -> np.ndarray:
        """Coverage of one lung."""
        return self.masks[f"lung_{side}"]

    def pick_side(self) -> str:
        """One of the two sides."""
        return "right" if self.rng.random() < 0.5 else "left"

    def pick_point(self, side: str, margin: float) -> np.ndarray:
        """Random point ``(x, y)`` in mm, at least ``margin`` mm inside a lung where the lung is wide enough."""
        plan = replace(self.projection, image_size=_PLANNING_SIZE)
        lung = organ_masks(self.anatomy, plan)[f"lung_{side}"] > 0.5
        distance = distance_transform_edt(np.pad(lung, 1))[1:-1, 1:-1] / plan.pixels_per_mm
        inside = np.flatnonzero(distance >= min(margin, 0.8 * float(distance.max())))
        chosen = int(inside[self.rng.integers(len(inside))])
        x, y = plan.grid()
        return np.array([x.flat[chosen], y.flat[chosen]], dtype=np.float64)


def _nodule(scene: Scene) -> np.ndarray:
    """A ball of soft tissue with a slightly irregular outline."""
    radius = float(scene.rng.uniform(6.0, 15.0))
    center = scene.pick_point(scene.pick_side(), radius + 4.0)
    angle = np.linspace(0.0, 2.0 * np.pi, 48, endpoint=False)
    wobble = (
        1.0
        + 0.08 * np.sin(2 * angle + scene.rng.uniform(0, 6))
        + 0.05 * np.sin(5 * angle + scene.rng.uniform(0, 6))
    )
    outline = center + radius * wobble[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    coverage = scene.projection.fill(outline)
    contrast = scene.rng.uniform(0.7, 1.4) * LUNG_CONTRAST
    scene.maps.vessels += (
        contrast * 2.0 * radius * dome(coverage, radius * scene.projection.pixels_per_mm)
    )
    return coverage


def _consolidation(scene: Scene) -> np.ndarray:
    """A patch where fluid replaces the air, with a fuzzy edge; it ends at the border of the lung."""
    side = scene.pick_side()
    radius = float(scene.rng.uniform(20.0, 45.0))
    center = scene.pick_point(side, 18.0)
    stretch = float(scene.rng.uniform(0.75, 1.3))
    x, y = scene.projection.grid()
    distance = np.hypot((x - center[0]) * stretch, (y - center[1]) / stretch) / radius
    rough = smooth_noise(scene.rng, scene.projection, 9.0) + 1.4 * smooth_noise(
        scene.rng, scene.projection, 22.0
    )
    coverage = 1.0 / (1.0 + np.exp(-5.0 * (1.0 - distance + 0.22 * np.clip(rough, -3.0, 3.0))))
    coverage *= scene.lung(side)
    density = float(scene.rng.uniform(0.35, 0.8))
    scene.maps.air *= 1.0 - density * coverage * (1.0 + 0.12 * np.clip(rough, -1.5, 1.5))
    scene.maps.vessels *= 1.0 - coverage
    return coverage


def _effusion(scene: Scene) -> np.ndarray:
    """Fluid at the base of the pleural space, its surface rising towards the side wall (meniscus)."""
    side, anatomy = scene.pick_side(), scene.anatomy
    height = float(scene.rng.uniform(0.14, 0.5)) * anatomy.patient.lung_height
    x, y = scene.projection.grid()
    lateral = np.clip(np.abs(x) / anatomy.patient.half_width, 0.0, 1.0)
    surface = anatomy.bottom - height * (0.62 + 0.38 * lateral**5)
    depth = np.clip((y - surface) / 7.0 + 0.5, 0.0, 1.0)
    opaque = float(scene.rng.uniform(0.7, 0.97))
    scene.maps.air *= 1.0 - opaque * depth * scene.masks[f"cavity_{side}"]
    scene.maps.vessels *= 1.0 - depth * scene.lung(side)
    return depth * scene.lung(side)


def _pneumothorax(scene: Scene) -> np.ndarray:
    """Air between the chest wall and the retracted lung: no vessels, more air, a thin pleural line."""
    side, anatomy, projection = scene.pick_side(), scene.anatomy, scene.projection
    size = projection.image_size
    shrink = float(scene.rng.uniform(0.12, 0.38))
    outline = anatomy.cavities[0 if side == "right" else 1]
    root = np.array([(-8.0 if side == "right" else 8.0), anatomy.landmarks[f"hilum_{side}"][1]])
    low = np.clip((outline[:, 1] - anatomy.top) / (anatomy.bottom - anatomy.top), 0.0, 1.0)
    factor = np.stack(
        [shrink * (1.15 - 0.6 * low), shrink * np.where(outline[:, 1] < root[1], 1.0, 0.12)], axis=1
    )
    retracted = projection.to_pixels(outline - factor * (outline - root), DEPTH["lung"])
    collapsed = fill_polygon(retracted, size, size)
    free = scene.lung(side) * (1.0 - collapsed)
    maps = scene.maps
    maps.air *= (
        1.0
        + free * float(scene.rng.uniform(0.10, 0.22))
        - 0.3 * shrink * collapsed * scene.lung(side)
    )
    maps.vessels *= 1.0 - free
    maps.texture *= 1.0 - free
    line = np.full(len(retracted), 1.2 * projection.pixels_per_mm)
    points, weights = ribbon_points(retracted, line, np.ones_like)
    maps.vessels += (
        splat_points(points, weights, size, size)
        * float(scene.rng.uniform(5.0, 11.0))
        * scene.lung(side)
    )
    return free


def _cardiomegaly(scene: Scene) -> np.ndarray:
    """The heart of the anatomy is large already: the lesion is the heart."""
    return scene.masks["heart"]


_PAINTERS: dict[str, Callable[[Scene], np.ndarray]] = dict(
    zip(
        LESION_KINDS,
        (_nodule, _consolidation, _effusion, _cardiomegaly, _pneumothorax),
        strict=True,
    )
)


def add_lesion(kind: str, scene: Scene) -> Lesion:
    """Changes the maps of a scene by one lesion of random place, size and contrast."""
    return Lesion(kind, _PAINTERS[kind](scene) > 0.5)
