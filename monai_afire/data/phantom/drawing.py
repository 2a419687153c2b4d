# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Drawing primitives of the chest phantom: anti-aliased polygons, ribbons and point splats on a pixel grid.

Points are ``(x, y)`` in pixels, where pixel ``i`` covers the interval ``[i, i + 1)``. All of it is plain NumPy on one
thread, so that a picture does not depend on a drawing library's version or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.ndimage import distance_transform_edt

# Distances (pixels) of the points that draw a ribbon: close enough for an even picture after bilinear splatting.
_SPACING_ALONG, _SPACING_ACROSS = 0.75, 0.5


def smooth_curve(controls: ArrayLike, num_points: int = 96, closed: bool = False) -> np.ndarray:
    """Cubic spline through control points, parametrised by chord length."""
    points = np.asarray(controls, dtype=np.float64)
    if closed:
        points = np.concatenate([points, points[:1]])
    knots = np.concatenate(
        [[0.0], np.cumsum(np.sqrt(np.linalg.norm(np.diff(points, axis=0), axis=1)))]
    )
    spline = CubicSpline(knots, points, bc_type="periodic" if closed else "natural")
    return spline(np.linspace(0.0, knots[-1], num_points, endpoint=not closed))


def fill_polygon(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """Area of each pixel that a closed polygon covers, by Green's theorem."""
    coverage = np.zeros((height, width), dtype=np.float32)
    # Only the rows that the polygon meets.
    first_row = int(np.clip(np.floor(points[:, 1].min()), 0, height))
    num_rows = int(np.clip(np.ceil(points[:, 1].max()), 0, height)) - first_row
    if num_rows > 0:
        area = _signed_area(points - np.array([0.0, first_row]), num_rows, width)
        coverage[first_row : first_row + num_rows] = np.minimum(
            np.abs(np.cumsum(area, axis=1))[:, :width], 1.0
        )
    return coverage


def _signed_area(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """What each pixel adds to the coverage of itself and of all pixels at its right, ``(height, width + 2)``."""
    steps = np.roll(points, -1, axis=0) - points
    pieces = np.maximum(np.ceil(2.0 * np.abs(steps).max(axis=1)), 1).astype(np.int64)
    edge = np.repeat(np.arange(len(points)), pieces)
    first = np.repeat(np.cumsum(pieces) - pieces, pieces)
    fraction = (np.arange(len(edge)) - first + 0.5) / pieces[edge]
    middle = points[edge] + fraction[:, None] * steps[edge]
    rise = steps[edge, 1] / pieces[edge]
    # A piece shorter than a pixel touches two rows at most; sharing it exactly keeps the sum of every row at zero.
    start, stop = middle[:, 1] - 0.5 * rise, middle[:, 1] + 0.5 * rise
    row = np.floor(np.stack([start, stop])).astype(np.int64)
    crossing = np.where(row[0] == row[1], stop, row.max(axis=0))
    parts = np.stack([crossing - start, stop - crossing])
    x = np.clip(middle[:, 0], 0.0, width)
    column = np.floor(x).astype(np.int64)
    remainder = x - column
    # One more row takes what lies above or below the picture.
    index = np.where((row >= 0) & (row < height), row, height) * (width + 2) + column
    area = np.zeros((height + 1) * (width + 2))
    area += np.bincount(index.ravel(), (parts * (1.0 - remainder)).ravel(), minlength=area.size)
    area += np.bincount(index.ravel() + 1, (parts * remainder).ravel(), minlength=area.size)
    return area.reshape(height + 1, width + 2)[:height]


def splat_points(points: np.ndarray, weights: np.ndarray, height: int, width: int) -> np.ndarray:
    """Adds weighted points to a picture, each shared bilinearly by the four nearest pixels."""
    # A border of one pixel takes the shares that fall outside.
    x, y = points[:, 0] + 0.5, points[:, 1] + 0.5
    inside = (x >= 0) & (x < width + 1) & (y >= 0) & (y < height + 1)
    x, y, weights = x[inside], y[inside], weights[inside]
    column, row = x.astype(np.int64), y.astype(np.int64)
    right, below = x - column, y - row
    stride = width + 2
    index = row * stride + column
    canvas = np.zeros((height + 2) * stride)
    for offset, share in (
        (0, (1 - right) * (1 - below)),
        (1, right * (1 - below)),
        (stride, (1 - right) * below),
        (stride + 1, right * below),
    ):
        canvas += np.bincount(index + offset, weights * share, minlength=canvas.size)
    return canvas.reshape(height + 2, stride)[1:-1, 1:-1].astype(np.float32)


def _normals(center: np.ndarray) -> np.ndarray:
    tangent = np.empty_like(center)
    tangent[1:-1] = center[2:] - center[:-2]
    tangent[0], tangent[-1] = center[1] - center[0], center[-1] - center[-2]
    tangent /= np.maximum(np.hypot(tangent[:, :1], tangent[:, 1:]), 1e-9)
    return tangent[:, ::-1] * np.array([-1.0, 1.0])


def ribbon_outline(center: np.ndarray, half_width: np.ndarray) -> np.ndarray:
    """Closed outline ``(2n, 2)`` of the ribbon of half widths ``(n,)`` about the center line ``(n, 2)``."""
    offset = _normals(center) * half_width[:, None]
    return np.concatenate([center + offset, (center - offset)[::-1]])


def tube_profile(solid: float, shell: float) -> Callable[[np.ndarray], np.ndarray]:
    """Path length across a tube with a dense wall (a bone's cortex), over the distance -1..1 from its axis."""

    def profile(t: np.ndarray) -> np.ndarray:
        return solid * np.sqrt(np.maximum(1.0 - t * t, 0.0)) + shell * np.exp(
            -(((np.abs(t) - 0.86) / 0.17) ** 2)
        )

    return profile


def ribbon_points(
    center: np.ndarray,
    half_width: np.ndarray,
    profile: Callable[[np.ndarray], np.ndarray],
    strength: np.ndarray | float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted points that draw a ribbon when splatted: each pixel gets the value of the profile."""
    step = np.diff(center, axis=0)
    length = np.concatenate([[0.0], np.cumsum(np.hypot(step[:, 0], step[:, 1]))])
    along = max(int(np.ceil(length[-1] / _SPACING_ALONG)), 2)
    position = (np.arange(along) + 0.5) * (length[-1] / along)
    line = np.empty((along, 2))
    line[:, 0] = np.interp(position, length, center[:, 0])
    line[:, 1] = np.interp(position, length, center[:, 1])
    half = np.interp(position, length, half_width)
    factor = strength if np.ndim(strength) == 0 else np.interp(position, length, strength)
    across = max(int(np.ceil(2.0 * half.max() / _SPACING_ACROSS)), 5)
    t = (np.arange(across) + 0.5) * (2.0 / across) - 1.0
    points = line[:, None] + _normals(line)[:, None] * (half[:, None] * t)[..., None]
    area = (length[-1] / along) * (2.0 / across) * half * factor
    return points.reshape(-1, 2), (area[:, None] * profile(t)).reshape(-1)


def dome(coverage: np.ndarray, radius: float) -> np.ndarray:
    """Thickness 0..1 of a body with round edges: a quarter circle over the distance (pixels) from the outline."""
    rows, columns = np.flatnonzero(coverage.any(axis=1)), np.flatnonzero(coverage.any(axis=0))
    thickness = np.zeros_like(coverage)
    if not len(rows):
        return thickness
    # Only the box about the body, with a margin outside; at the picture's edge the body is taken to go on.
    box = (slice(max(rows[0] - 2, 0), rows[-1] + 3), slice(max(columns[0] - 2, 0), columns[-1] + 3))
    body = np.pad(coverage[box], 1, mode="edge")
    distance, nearest = distance_transform_edt(body > 0.999, return_indices=True)
    # The outline runs through the nearest pixel that is not full: without its share slanted outlines would show steps.
    share = body[nearest[0], nearest[1]]
    inward = np.maximum(distance.astype(np.float32) - 0.5 + share, 0.5 * body)[1:-1, 1:-1]
    inward = np.minimum(inward / np.float32(radius), 1.0)
    thickness[box] = coverage[box] * np.sqrt(1.0 - (1.0 - inward) ** 2)
    return thickness
