# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures out of files that are made for volumes: which axis runs down, which to the right."""

from __future__ import annotations

import math
from collections.abc import Sequence

import nibabel as nib
import numpy as np

from monai_afire.transforms.radiograph_io.common import (
    RadiographPixels,
    SizeLimits,
    planar_affine,
    refuse,
    require_real,
    rgb_to_gray,
)

__all__ = ["picture_axes", "plane_pixels"]


def picture_axes(path: str, shape: Sequence[int], affine: np.ndarray, limits: SizeLimits) -> tuple[int, int]:
    """Axes of an array that become the rows and the columns.

    Args:
        path: the file, for messages.
        shape: lengths of the axes, 1 except for two.
        affine: RAS affine ``(4, 4)`` of the first three axes.
        limits: sizes that are accepted.

    Raises:
        RadiographError: When more than two axes are longer than 1, or the picture is of the wrong size.
    """
    shape = tuple(int(n) for n in shape)
    text = " x ".join(map(str, shape))
    axes = [axis for axis, length in enumerate(shape) if length != 1]
    if len(axes) > 2 or any(axis > 2 for axis in axes) or math.prod(shape) == 0:
        reason = f"has the shape {text}, where one 2-D picture is expected (two axes longer than 1)"
        raise refuse(path, reason, "save the wanted slice as a file of its own")
    first, second = (axes + [axis for axis in range(3) if axis not in axes])[:2]
    limits.check(path, *((*shape, 1, 1, 1)[axis] for axis in (second, first)))
    world = _world_axes(affine)
    # Rows follow the vertical direction of the body, or y in the stand-in plane: the higher of the two world axes.
    return (first, second) if world[first] > world[second] else (second, first)


def plane_pixels(
    path: str, values: np.ndarray, affine: np.ndarray, limits: SizeLimits, file_format: str, bits: int
) -> RadiographPixels:
    """Turn the one plane of an array upright, with its affine.

    Args:
        path: the file, for messages.
        values: numbers, or the fields R, G and B, with the axes in the order of ``affine``.
        affine: RAS affine ``(4, 4)``.
        limits: sizes that are accepted.
        file_format: name of the format.
        bits: bits per pixel that the file declares.

    Raises:
        RadiographError: As :func:`picture_axes`, and when the numbers are not real.
    """
    row, column = picture_axes(path, values.shape, affine, limits)
    affine = np.asarray(affine, dtype=np.float64)
    values = values.reshape((*values.shape, 1, 1, 1)[:3])
    values = np.moveaxis(values, (row, column), (0, 1))[:, :, 0]
    photometric = "MONOCHROME2"
    if values.dtype.fields:
        values, photometric = rgb_to_gray(np.stack([values[name] for name in ("R", "G", "B")], axis=-1)), "RGB"
    require_real(path, values.dtype)
    lengths = np.linalg.norm(affine[:3, :3], axis=0)
    spacing = (float(lengths[row]), float(lengths[column]))
    normal = 3 - row - column
    plane = affine[:, [row, column, normal, 3]]
    if 2 in (world := _world_axes(affine))[row : row + 1] + world[column : column + 1]:
        values = values[:: -1 if affine[world[row], row] > 0 else 1, :: -1 if affine[world[column], column] > 0 else 1]
        plane = planar_affine(spacing)
    return RadiographPixels(
        values=np.ascontiguousarray(values),
        file_format=file_format,
        photometric=photometric,
        bits=bits,
        affine=plane,
        spacing=spacing,
    )


def _world_axes(affine: np.ndarray) -> list[int]:
    """World axis (0 = x, 1 = y, 2 = z) of each axis of the array; its own number where the affine is degenerate."""
    orientation = nib.io_orientation(affine)[:, 0]
    return [int(world) if np.isfinite(world) else axis for axis, world in enumerate(orientation)]
