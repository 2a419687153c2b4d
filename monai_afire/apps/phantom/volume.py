# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One procedurally drawn volume of the chest, as a CT shows it, with its ground truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import distance_transform_edt, gaussian_filter

from monai_afire.apps.phantom.anatomy import DEPTH, LANDMARK_NAMES, ORGAN_NAMES, ChestAnatomy
from monai_afire.apps.phantom.lesions import LESION_KINDS, DrawnChest, Lesion, draw_anatomy
from monai_afire.apps.phantom.phantom_rendering import airways, lung_depth
from monai_afire.apps.phantom.skeleton import clavicle, skeleton, vessel_tree
from monai_afire.apps.phantom.volume_grid import VolumeGrid

_LEAST_SIZE = 16
# Hounsfield units
_AIR, _FAT, _TISSUE, _BLOOD, _LUNG, _BONE = -1000.0, -95.0, 45.0, 55.0, -860.0, 550.0
_NOISE = 18.0


@dataclass(frozen=True)
class ChestVolume(DrawnChest):
    """A drawn volume and everything that is known about it; axes run to the right, the front and up (RAS).

    Attributes:
        image: float32 ``(1, X, Y, Z)`` in Hounsfield units, -1024 to 1500.
        organs: uint8 ``(5, X, Y, Z)`` of 0 and 1, in the order of ``ORGAN_NAMES``; the lungs with the parts that a
            lesion hides.
        landmarks: float32 ``(15, 3)`` in voxels (0 is the center of the first one), in the order of
            ``LANDMARK_NAMES``.
        lesions: the lesions, in the order in which they were asked for.
        patient: the measures of the patient.
        affine: ``(4, 4)`` from voxels to millimetres.
    """

    affine: np.ndarray

    @property
    def voxel_size(self) -> tuple[float, float, float]:
        """Sides of a voxel, mm."""
        x, y, z = (float(size) for size in np.diag(self.affine)[:3])
        return x, y, z


def volume_shape(image_size: int | Sequence[int]) -> tuple[int, int, int]:
    """Voxels along each axis, from one number or three."""
    sizes = [image_size] * 3 if isinstance(image_size, int) else [int(size) for size in image_size]
    if len(sizes) != 3 or min(sizes) < _LEAST_SIZE:
        raise ValueError(f"image_size is {image_size}: give one number of voxels or three, each {_LEAST_SIZE} or more.")
    return sizes[0], sizes[1], sizes[2]


def draw_chest_volume(
    seed_or_sequence: int | np.random.SeedSequence, image_size: int | Sequence[int] = 64, lesions: Sequence[str] = ()
) -> ChestVolume:
    """Draws one patient's chest as a CT shows it, with organ masks, landmarks and lesions.

    The patient is that of the radiograph that `draw_chest_phantom` draws of the same seed: the same outlines seen from
    the front, given a depth. It lies straight. The same seed gives the same patient with and without lesions.

    Args:
        seed_or_sequence: seed of the patient.
        image_size: voxels along each axis, one number or three, 16 or more.
        lesions: kinds of ``LESION_KINDS`` to add, in this order; a kind may occur several times.

    Returns:
        The volume with its ground truth.

    Raises:
        ValueError: when ``image_size`` is too small or a kind of lesion is unknown.

    Example:
        >>> volume = draw_chest_volume(7, image_size=24, lesions=["nodule"])
        >>> volume.image.shape, volume.organs.shape, volume.landmarks.shape, volume.label.tolist()
        ((1, 24, 24, 24), (5, 24, 24, 24), (15, 3), [1.0, 0.0, 0.0, 0.0, 0.0])
    """
    shape = volume_shape(image_size)
    anatomy, (for_pose, for_tissue, _, for_noise, for_lesions) = draw_anatomy(seed_or_sequence, lesions)
    scene = _healthy(_placed(anatomy, shape, for_pose), for_tissue, for_lesions)
    drawn = tuple(_add_lesion(kind, scene) for kind in lesions)
    noise = gaussian_filter(for_noise.standard_normal(shape, dtype=np.float32), 0.5)
    image = np.clip(scene.image + _NOISE * noise / noise.std(), -1024.0, 1500.0)
    points = np.array([anatomy.landmarks[name] for name in LANDMARK_NAMES])
    return ChestVolume(
        image=image[None].astype(np.float32),
        organs=np.stack([scene.organs[name] > 0.5 for name in ORGAN_NAMES]).astype(np.uint8),
        landmarks=scene.grid.to_voxels(points).astype(np.float32),
        lesions=drawn,
        patient=anatomy.patient,
        affine=scene.grid.affine,
    )


def _placed(anatomy: ChestAnatomy, shape: tuple[int, int, int], rng: np.random.Generator) -> VolumeGrid:
    """The patient in the scanner; lungs and landmarks stay inside."""
    patient = anatomy.patient
    side = max(2.0 * patient.half_width / rng.uniform(0.70, 0.80), patient.lung_height / 0.82)
    shift = (float(rng.uniform(-0.02, 0.02)) * side, float(rng.uniform(-0.02, 0.02)) * side)
    return VolumeGrid(anatomy, shape, float(side), (shift[0], 0.5 * (anatomy.top + anatomy.bottom) + shift[1]))


def _healthy(grid: VolumeGrid, rng: np.random.Generator, for_lesions: np.random.Generator) -> _Scene:
    """The chest without lesions."""
    organs = _organs(grid)
    lungs = np.maximum(organs["lung_right"], organs["lung_left"])
    body, fat = _body(grid)
    image = np.full(grid.shape, _AIR, dtype=np.float32)
    for coverage, value in (
        (body, _TISSUE),
        (fat, _FAT),
        (organs["heart"], _BLOOD),
        (lungs, _LUNG),
        (grid.tubes(skeleton(grid.anatomy)) * body * (1.0 - organs["heart"]), _BONE),
        (grid.tubes(airways(grid.anatomy)) * body, _AIR),
    ):
        image += coverage * (value - image)
    image += lungs * (_vessels(grid, rng) - 0.35 * grid.coordinates[2])  # what lies at the back is denser
    return _Scene(grid, np.minimum(image, 1500.0), organs, for_lesions)


def _organs(grid: VolumeGrid) -> dict[str, np.ndarray]:
    """Coverage (0..1) of the organs by name."""
    anatomy, patient = grid.anatomy, grid.anatomy.patient
    x, y, z = grid.coordinates
    depth = lung_depth(anatomy, x, y)
    organs = {
        "heart": grid.outline("heart") * grid.slab(0.27 * patient.thickness * _bulge(grid), DEPTH["heart"]),
        "mediastinum": grid.outline("mediastinum") * grid.slab(0.31 * depth, DEPTH["mediastinum"]),
    }
    other = np.maximum(organs["heart"], organs["mediastinum"])
    # the domes of the diaphragm are highest in the middle: in front and at the back the lungs reach deeper
    sunk = y - 0.10 * patient.lung_height * np.clip(z / (0.35 * patient.thickness), -1.0, 1.0) ** 2 * (y > 0.0)
    inside = grid.slab(0.5 * depth)
    for index, side in enumerate(("right", "left")):
        organs[f"lung_{side}"] = grid.outline(f"cavity_{side}", sunk) * inside * (1.0 - other)
        organs[f"clavicle_{side}"] = grid.tubes([clavicle(anatomy, index)])
    return organs


def _bulge(grid: VolumeGrid) -> np.ndarray:
    """How far the heart reaches to front and back, 0 at its border to 1 in its middle, as for an ellipsoid."""
    outline = grid.anatomy.heart
    low, high = outline.min(axis=0), outline.max(axis=0)
    x, y, _ = grid.coordinates
    across, along = (2.0 * (c - low[i]) / (high[i] - low[i]) - 1.0 for i, c in enumerate((x, y)))
    return np.sqrt(np.clip(1.0 - 0.8 * np.maximum(across**2, along**2), 0.1, 1.0))


def _body(grid: VolumeGrid) -> tuple[np.ndarray, np.ndarray]:
    """Coverage by the trunk, and by the fat below its skin."""
    patient, top, bottom = grid.anatomy.patient, grid.anatomy.top, grid.anatomy.bottom
    x, y, z = grid.coordinates
    levels = [top - 60, top - 20, top + 20, top + 90, bottom]
    edge = patient.half_width
    width = np.interp(y, levels, [58.0, edge, edge + 26, edge + 20, edge + 22]) + 12.0 * patient.fat
    depth = np.interp(y, levels, [0.32, 0.36, 0.42, 0.50, 0.52]) * patient.thickness
    radius = ((np.abs(x) / width) ** 2.6 + (np.abs(z) / depth) ** 2.6) ** (1 / 2.6)
    sharpness = depth / grid.voxel_size[1]
    body = np.clip((1.0 - radius) * sharpness + 0.5, 0.0, 1.0).astype(np.float32)
    thickness = 0.06 + 0.04 * patient.fat
    fat = np.clip((radius - 1.0 + thickness) * sharpness + 0.5, 0.0, 1.0).astype(np.float32) * body
    return body, fat


def _vessels(grid: VolumeGrid, rng: np.random.Generator) -> np.ndarray:
    """What the vessels of the lungs add, in Hounsfield units."""
    added = np.zeros(grid.shape, np.float32)
    for side in (-1, 1):
        points, _, volumes = vessel_tree(grid.anatomy, side, rng)
        x, y = points[:, 0], points[:, 1]
        # branches of a tree that is drawn flat, folded into the depth of the lung
        phase = rng.uniform(0.0, 2.0 * np.pi, 3)
        fold = np.sin(0.045 * x + phase[0]) + np.sin(0.06 * y + phase[1]) + 0.5 * np.sin(0.11 * (x + y) + phase[2])
        z = 0.5 * lung_depth(grid.anatomy, x, y) * 0.36 * fold
        voxels = np.rint(grid.to_voxels(np.stack([x, y, z], axis=1))).astype(int)
        valid = ((voxels >= 0) & (voxels < grid.shape)).all(axis=1)
        np.add.at(added, tuple(voxels[valid].T), np.float32(volumes[valid]))
    filled = gaussian_filter(added / np.prod(grid.voxel_size), 0.5)
    return np.minimum(filled, 0.8) * (_BLOOD - _LUNG)


@dataclass
class _Scene:
    """A chest that is being drawn."""

    grid: VolumeGrid
    image: np.ndarray
    organs: dict[str, np.ndarray]
    rng: np.random.Generator

    def pick_lung(self) -> np.ndarray:
        """Coverage of one lung."""
        return self.organs["lung_right" if self.rng.random() < 0.5 else "lung_left"]

    def pick_point(self, lung: np.ndarray, margin: float) -> np.ndarray:
        """Coordinates ``(3,)`` (mm) of a point at least ``margin`` mm inside a lung where it is wide enough."""
        depth = distance_transform_edt(lung > 0.5, sampling=self.grid.voxel_size)
        inside = np.flatnonzero(depth >= min(margin, 0.8 * float(depth.max())))
        point = np.unravel_index(int(inside[self.rng.integers(len(inside))]), self.grid.shape)
        return np.array([np.broadcast_to(axis, self.grid.shape)[point] for axis in self.grid.coordinates])

    def paint(self, coverage: np.ndarray, value: float) -> None:
        """Mix a value in Hounsfield units into the image."""
        self.image += coverage * (value - self.image)

    def distance(self, point: np.ndarray, stretch: np.ndarray | float = 1.0) -> np.ndarray:
        """Distance (mm) of each voxel to a point, its axes divided by factors."""
        factors = np.broadcast_to(stretch, 3)
        squares = [((axis - point[i]) / factors[i]) ** 2 for i, axis in enumerate(self.grid.coordinates)]
        return np.sqrt(squares[0] + squares[1] + squares[2])


def _nodule(scene: _Scene) -> np.ndarray:
    """A ball of soft tissue."""
    radius = float(scene.rng.uniform(9.0, 18.0))
    point = scene.pick_point(scene.pick_lung(), radius)
    edge = float(scene.grid.voxel_size.mean())
    stretch = scene.rng.uniform(0.85, 1.15, 3)
    coverage = np.clip((radius - scene.distance(point, stretch)) / edge + 0.5, 0.0, 1.0)
    scene.paint(coverage, float(scene.rng.uniform(0.0, 60.0)))
    return coverage


def _consolidation(scene: _Scene) -> np.ndarray:
    """A region where fluid replaces the air, with a fuzzy edge; it ends at the border of the lung."""
    lung = scene.pick_lung()
    radius = float(scene.rng.uniform(20.0, 42.0))
    distance = scene.distance(scene.pick_point(lung, 18.0), scene.rng.uniform(0.75, 1.3, 3)) / radius
    rough = gaussian_filter(scene.rng.standard_normal(scene.grid.shape), 9.0 / scene.grid.voxel_size)
    rough /= max(float(rough.std()), 1e-6)
    coverage = lung / (1.0 + np.exp(-6.0 * (1.0 - distance + 0.2 * np.clip(rough, -2.0, 2.0))))
    scene.paint(float(scene.rng.uniform(0.6, 0.95)) * coverage, 20.0)
    return coverage


def _effusion(scene: _Scene) -> np.ndarray:
    """Fluid at the back of the pleural space, below all in its lower half, of a patient who lies."""
    lung, anatomy = scene.pick_lung(), scene.grid.anatomy
    _, y, z = scene.grid.coordinates
    height = float(scene.rng.uniform(0.25, 0.55)) * 0.5 * anatomy.patient.thickness
    low = np.clip((y - anatomy.top) / (anatomy.bottom - anatomy.top), 0.0, 1.0)
    surface = -0.36 * anatomy.patient.thickness + height * low**0.7
    coverage = lung * np.clip((surface - z) / scene.grid.voxel_size[1] + 0.5, 0.0, 1.0)
    scene.paint(coverage, 12.0)
    return coverage


def _pneumothorax(scene: _Scene) -> np.ndarray:
    """Air without vessels in front of the lung of a patient who lies, which has moved back."""
    lung, patient = scene.pick_lung(), scene.grid.anatomy.patient
    inside = np.flatnonzero((lung > 0.5).any(axis=(0, 2)))
    front = float(scene.grid.coordinates[2][0, inside[-1], 0])
    depth = float(scene.rng.uniform(0.14, 0.30)) * patient.thickness
    coverage = lung * np.clip((scene.grid.coordinates[2] - front + depth) / scene.grid.voxel_size[1] + 0.5, 0.0, 1.0)
    scene.paint(coverage, -995.0)
    scene.image += 90.0 * lung * (1.0 - coverage)  # less air is left in the rest
    return coverage


def _cardiomegaly(scene: _Scene) -> np.ndarray:
    """The heart of the anatomy is large already: the lesion is the heart."""
    return scene.organs["heart"]


_PAINTERS: dict[str, Callable[[_Scene], np.ndarray]] = dict(
    zip(LESION_KINDS, (_nodule, _consolidation, _effusion, _cardiomegaly, _pneumothorax), strict=True)
)


def _add_lesion(kind: str, scene: _Scene) -> Lesion:
    """Change the image of a scene by one lesion of random point, size and contrast."""
    coverage = _PAINTERS[kind](scene)
    return Lesion(kind, coverage >= min(0.5, float(coverage.max())))
