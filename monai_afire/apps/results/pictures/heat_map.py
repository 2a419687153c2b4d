# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps laid over radiographs."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import ArrayLike, NDArray

LEVELS = 256
OPACITY = 0.45  # of the strongest color: more would hide what the radiograph shows below it
ANCHORS = ((255, 225, 60), (255, 150, 30), (240, 50, 30), (190, 0, 70))
# cyan, as in no radiograph or heat map, seen on black and on white: frames, outlines
MARK_COLOR = "#00E5FF"

_COLOR_MAP = LinearSegmentedColormap.from_list("heat", np.divide(ANCHORS, 255), N=LEVELS)

HEAT_COLORS: NDArray[np.uint8] = np.rint(255 * _COLOR_MAP(np.arange(LEVELS))[:, :3]).astype(
    np.uint8
)
"""Colors (256, 3) from the weakest to the strongest heat; darker as it gets stronger, for readers who see no hue."""


def overlay_heat_map(
    image: ArrayLike, heat: ArrayLike, low: float, high: float, fades: bool = True
) -> NDArray[np.uint8]:
    """
    Lay a heat map over a radiograph: no color where the heat is at most ``low``, the strongest from ``high`` on.

    Between the two, opacity and place in ``HEAT_COLORS`` grow in proportion to the heat, in 255 steps. With the same
    ``low`` and ``high`` the same color means the same heat in all pictures.

    The image is ``(H, W)`` in [0, 1], the heat ``(H, W)``, where infinite values are the coldest and the hottest; the
    result is ``(H, W, 3)``. Without ``fades`` weaker colors are as opaque, and weak heat has an edge at ``low``.

    Raises:
        ValueError: for an image beyond [0, 1], NaN, or a range that is none.
    """
    picture, values = np.asarray(image, dtype=np.float32), np.asarray(heat, dtype=np.float64)
    if np.isnan(values).any() or not (picture.min() >= -1e-3 and picture.max() <= 1 + 1e-3):
        raise ValueError("the heat has NaN, or the image leaves [0, 1]: exploded or wrong weights?")
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(f"low must be below high and both finite, got {low} and {high}")
    level = np.subtract(values, low)
    with np.errstate(over="ignore"):  # a huge heat becomes infinite, the hottest
        level *= (LEVELS - 1) / (high - low)
    gray = np.multiply(picture, LEVELS - 1)
    for numbers in (level, gray):  # in place: memory is what takes the time
        numbers += 0.5
        np.clip(numbers, 0, LEVELS - 1, out=numbers)
    entries = gray.astype(np.uint16) * np.uint16(LEVELS) + level.astype(np.uint16)
    return _blend_table(fades).take(entries, axis=0)


@lru_cache
def _blend_table(fades: bool) -> NDArray[np.uint8]:
    """The color of each level of gray under each level of heat, (256 * 256, 3), heat running fastest."""
    opacity = np.linspace(0 if fades else OPACITY, OPACITY, LEVELS)[:, None]
    opacity[0] = 0
    gray = np.arange(LEVELS)[:, None, None]
    return (gray * (1 - opacity) + HEAT_COLORS * opacity + 0.5).astype(np.uint8).reshape(-1, 3)
