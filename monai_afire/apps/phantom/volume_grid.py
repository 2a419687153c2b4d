# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The voxels of a volume of the phantom, and where they lie in the patient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.ndimage import map_coordinates

from monai_afire.apps.phantom.anatomy import ChestAnatomy, Projection
from monai_afire.apps.phantom.phantom_rendering import organ_masks
from monai_afire.apps.phantom.skeleton import Ribbon

_PLANNING_SIZE = 192  # of the frontal outlines, which are drawn once and looked up
_DEPTH_SHARE = 0.75  # of the field of view from front to back against that across


@dataclass(frozen=True)
class VolumeGrid:
    """Voxels along the axes right, front and up (RAS), as MONAI's transforms order a volume."""

    anatomy: ChestAnatomy
    shape: tuple[int, int, int]
    side: float
    center: tuple[float, float]

    @property
    def voxel_size(self) -> np.ndarray:
        """Sides ``(3,)`` of a voxel, mm."""
        return np.array([self.side, _DEPTH_SHARE * self.side, self.side]) / self.shape

    @property
    def affine(self) -> np.ndarray:
        """``(4, 4)`` from voxels to millimetres right, front and up of the carina."""
        affine = np.diag([*self.voxel_size, 1.0])
        middle = np.array([-self.center[0], 0.0, -self.center[1]])
        affine[:3, 3] = middle - self.voxel_size * (np.array(self.shape) - 1) / 2
        return affine

    @cached_property
    def coordinates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coordinates ``x, y, z`` of the anatomy (mm) of all voxels, float32, to be broadcast together."""
        starts, steps = self.affine[:3, 3], self.voxel_size
        right, front, up = (
            start + step * np.arange(n) for start, step, n in zip(starts, steps, self.shape, strict=True)
        )
        return (np.float32(-right)[:, None, None], np.float32(-up)[None, None, :], np.float32(front)[None, :, None])

    def to_voxels(self, points: np.ndarray) -> np.ndarray:
        """Points ``(n, 3)``, ``x, y, z`` of the anatomy, in voxels; 0 is the center of the first one."""
        world = points[:, [0, 2, 1]] * np.array([-1.0, 1.0, -1.0])
        return (world - self.affine[:3, 3]) / self.voxel_size

    @cached_property
    def _frontal(self) -> tuple[Projection, dict[str, np.ndarray]]:
        plan = Projection(_PLANNING_SIZE, 1.4 * self.side, self.center, 0.0, 0.0, 0.0)
        return plan, organ_masks(self.anatomy, plan)

    def outline(self, name: str, y: np.ndarray | None = None) -> np.ndarray:
        """Coverage (0..1) of each voxel by a frontal outline of :func:`organ_masks`, the same at every depth."""
        plan, masks = self._frontal
        x, own, _ = self.coordinates
        heights = own if y is None else y
        shape = np.broadcast_shapes(x.shape, heights.shape)
        points = np.stack([np.broadcast_to(x, shape), np.broadcast_to(heights, shape)], axis=-1)
        columns, rows = np.moveaxis(plan.to_pixels(points) - 0.5, -1, 0)
        return map_coordinates(masks[name], [rows, columns], order=1, mode="nearest")

    def slab(self, half_depth: np.ndarray, middle: float = 0.0) -> np.ndarray:
        """Coverage (0..1) of each voxel by what reaches ``half_depth`` (mm) to front and back of a depth."""
        return np.clip((half_depth - np.abs(self.coordinates[2] - middle)) / self.voxel_size[1] + 0.5, 0.0, 1.0)

    def tubes(self, ribbons: Sequence[Ribbon]) -> np.ndarray:
        """Coverage (0..1) of each voxel by tubes along lines."""
        coverage = np.zeros(self.shape, np.float32)
        for ribbon in ribbons:
            radii = np.broadcast_to(np.asarray(ribbon.half_width, dtype=float), len(ribbon.center))
            line = np.column_stack([ribbon.center, np.broadcast_to(ribbon.depth, len(ribbon.center))])
            self._add_balls(coverage, self.to_voxels(line), radii)
        return coverage

    def _add_balls(self, coverage: np.ndarray, voxels: np.ndarray, radii: np.ndarray) -> None:
        """Raise the coverage by balls about places in voxels; all neighborhoods have the size of the largest."""
        edge = float(self.voxel_size.mean())
        reach = np.ceil((radii.max() + edge / 2) / self.voxel_size).astype(int)
        offsets = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in reach), indexing="ij"), axis=-1).reshape(-1, 3)
        near = np.rint(voxels).astype(int)[:, None] + offsets
        distance = np.linalg.norm((near - voxels[:, None]) * self.voxel_size, axis=-1)
        # a tube thinner than a voxel fills a part of it
        filled = np.clip((radii[:, None] - distance) / edge + 0.5, 0.0, 1.0) * np.minimum(
            2 * radii[:, None] / edge, 1.0
        )
        valid = ((near >= 0) & (near < self.shape)).all(axis=-1) & (filled > 0)
        np.maximum.at(coverage, tuple(near[valid].T), filled[valid].astype(np.float32))
