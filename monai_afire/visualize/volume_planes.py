# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Planes of a volume, as radiologists look at them: pictures of what has three axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F


def axial_plane(image: NDArray, place: Sequence[int]) -> NDArray:
    """The axial plane through a place of a volume; a picture unchanged."""
    return image if image.ndim == 2 else upright(image[:, :, int(place[2])])


def hottest_planes(
    picture: NDArray, heat: NDArray, voxel_size: Sequence[float], shape: Sequence[int]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Axial, coronal and sagittal plane through the hottest place, side by side in the proportions of the patient."""
    sides = np.asarray(voxel_size, dtype=float) * np.asarray(shape)
    pixels = np.maximum(np.rint(sides * max(picture.shape) / sides.max()), 1).astype(int)
    size = tuple(int(count) for count in pixels)
    volumes = [
        F.interpolate(
            torch.as_tensor(np.ascontiguousarray(each), dtype=torch.float32)[None, None], size, mode="trilinear"
        )
        for each in (picture, heat)
    ]
    gray, hot = (volume[0, 0].numpy() for volume in volumes)
    x, y, z = np.unravel_index(hot.argmax(), hot.shape)
    rows = max(size[1], size[2])
    shown = [
        np.concatenate([_padded(upright(plane), rows, fill) for plane in (v[:, :, z], v[:, y, :], v[x, :, :])], axis=1)
        for v, fill in ((gray / 255, 0.0), (hot, float(hot.min())))
    ]
    return shown[0].astype(np.float32), shown[1].astype(np.float32)


def fullest_plane(masks: NDArray) -> int:
    """The axial plane of a volume in which most voxels belong to something."""
    voxels = (masks != 0).sum(axis=(0, 1, 2))
    return int(voxels.argmax()) if voxels.any() else len(voxels) // 2


def fullest_planes(image: NDArray, masks: NDArray, *others: NDArray) -> tuple[NDArray, ...]:
    """A picture and stacks of masks as they are; of a volume the axial plane that holds most of the first stack."""
    if image.ndim == 2:
        return image, masks, *others
    place = (0, 0, fullest_plane(masks))
    stacks = (np.stack([axial_plane(mask, place) for mask in stack]) for stack in (masks, *others))
    return axial_plane(image, place), *stacks


def frontal_projection(image: NDArray) -> NDArray:
    """A volume as seen from the front: its mean along the second axis, like a radiograph."""
    return upright(image.mean(axis=1))


def frontal_positions(positions: NDArray, shape: Sequence[int]) -> NDArray:
    """Where positions in a volume are in its :func:`frontal_projection`."""
    return np.stack([shape[2] - 1 - positions[:, 2], shape[0] - 1 - positions[:, 0]], axis=1)


def upright(plane: NDArray) -> NDArray:
    """A plane of a volume turned upright: the first axis to the left, the second upwards."""
    return plane.swapaxes(0, 1)[::-1, ::-1]


def _padded(plane: NDArray, rows: int, fill: float) -> NDArray:
    return np.pad(plane, ((0, rows - plane.shape[0]), (0, 0)), constant_values=fill)
