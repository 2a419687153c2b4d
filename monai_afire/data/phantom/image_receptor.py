# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The X-ray detector of the chest phantom: Beer-Lambert attenuation, scatter, noise, processing, marker and borders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter, uniform_filter

from monai_afire.data.phantom.anatomy import ChestAnatomy, Projection
from monai_afire.data.phantom.drawing import fill_polygon
from monai_afire.data.phantom.rendering import ThicknessMaps

__all__ = ["Exposure", "expose", "sample_exposure"]

ATTENUATION = 0.021  # of water at the mean energy of a chest film, 1/mm


@dataclass(frozen=True)
class Exposure:
    """Settings of one exposure and of its processing.

    Attributes:
        centre, width: window on the attenuation, as fractions of the thickness of the trunk.
        equalise: share of the coarse structure that the processing takes out.
        sharpen: gain of the fine structure.
        scatter: scattered over primary radiation.
        noise: quantum noise behind a lung, as fraction of the signal.
        blur: unsharpness, mm.
        border: black borders (left, top, right, bottom) as fractions of the side; 0 for none.
        border_angle: rotation of the borders, radians.
        marker: whether the side marker "L" is in the picture.
        marker_place: its position as fraction of the side.
    """

    centre: float
    width: float
    equalise: float
    sharpen: float
    scatter: float
    noise: float
    blur: float
    border: tuple[float, float, float, float]
    border_angle: float
    marker: bool
    marker_place: tuple[float, float]


def sample_exposure(rng: np.random.Generator) -> Exposure:
    """Draws the settings of an exposure."""
    border = np.where(rng.random(4) < 0.3, rng.uniform(0.005, 0.05, 4), 0.0)
    return Exposure(
        centre=float(rng.uniform(0.50, 0.62)),
        width=float(rng.uniform(0.13, 0.20)),
        equalise=float(rng.uniform(0.0, 0.35)),
        sharpen=float(rng.uniform(0.1, 1.1)),
        scatter=float(rng.uniform(0.1, 0.4)),
        noise=float(rng.uniform(0.004, 0.018)),
        blur=float(rng.uniform(0.5, 1.0)),
        border=(float(border[0]), float(border[1]), float(border[2]), float(border[3])),
        border_angle=float(rng.normal(0.0, 0.012)),
        marker=bool(rng.random() < 0.7),
        marker_place=(float(rng.uniform(0.86, 0.93)), float(rng.uniform(0.05, 0.16))),
    )


def expose(
    maps: ThicknessMaps, anatomy: ChestAnatomy, projection: Projection, exposure: Exposure, rng: np.random.Generator
) -> np.ndarray:
    """The displayed picture: transmitted intensity, scatter, quantum noise, logarithm, processing and window.

    Returns:
        float32 ``(size, size)`` in [0, 1], bright where the chest is dense.
    """
    size, ppmm = projection.image_size, projection.pixels_per_mm
    water = maps.water() + 0.012 * np.clip(maps.air, 0.0, 120.0) * maps.texture
    primary = np.exp(-ATTENUATION * water)
    wide = max(int(30 * ppmm), 1)
    scattered = uniform_filter(uniform_filter(primary, wide), wide)
    signal = gaussian_filter(primary, max(exposure.blur * ppmm, 0.3)) + exposure.scatter * np.minimum(scattered, 0.12)
    lung_signal = np.exp(-ATTENUATION * 0.5 * anatomy.patient.thickness)
    noise = exposure.noise * np.sqrt(signal * lung_signal) * rng.standard_normal((size, size), dtype=np.float32)
    depth = -np.log(np.maximum(signal + noise, 1e-4)) / ATTENUATION
    coarse = uniform_filter(uniform_filter(depth, int(60 * ppmm)), int(60 * ppmm))
    thickness = anatomy.patient.thickness
    depth = depth + exposure.sharpen * (depth - uniform_filter(depth, max(int(9 * ppmm), 1)))
    depth = depth - exposure.equalise * (coarse - 0.65 * thickness)
    centre, width = exposure.centre * thickness, exposure.width * thickness
    picture = 1.0 / (1.0 + np.exp(-(depth - centre) / width))
    black = 1.0 / (1.0 + np.exp(centre / width))
    picture = np.clip((picture - black) / (0.985 - black), 0.0, 1.0)
    return _frame(picture, exposure).astype(np.float32)


_LETTER_L = np.array([(0.0, 0.0), (0.26, 0.0), (0.26, 0.76), (0.7, 0.76), (0.7, 1.0), (0.0, 1.0)])


def _frame(picture: np.ndarray, exposure: Exposure) -> np.ndarray:
    """Adds the lead marker "L" at the patient's left and blackens the borders outside the collimator."""
    size = picture.shape[0]
    if exposure.marker:
        letter = fill_polygon((_LETTER_L * 0.042 + np.array(exposure.marker_place)) * size, size, size)
        picture = picture + 0.9 * letter * (1.0 - picture)
    if not any(exposure.border):
        return picture
    left, top, right, bottom = exposure.border
    margin = 0.5  # far outside: a side without border must stay without when the frame is rotated
    left, top, right, bottom = (side if side > 0 else -margin for side in (left, top, right, bottom))
    corners = np.array([(left, top), (1 - right, top), (1 - right, 1 - bottom), (left, 1 - bottom)]) - 0.5
    cos, sin = np.cos(exposure.border_angle), np.sin(exposure.border_angle)
    corners = corners @ np.array([[cos, sin], [-sin, cos]]) + 0.5
    return picture * fill_polygon(corners * size, size, size)
