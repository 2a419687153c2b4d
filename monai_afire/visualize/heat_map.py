# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps laid over radiographs."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["HEAT_COLORS", "overlay_heat_map"]

LEVELS = 256
OPACITY = 0.45  # of the strongest colour: more would hide what the radiograph shows below it
ANCHORS = ((255, 225, 60), (255, 150, 30), (240, 50, 30), (190, 0, 70))


def _color_table() -> NDArray[np.uint8]:
    anchors = np.linspace(0, LEVELS - 1, len(ANCHORS))
    channels = [np.interp(np.arange(LEVELS), anchors, channel) for channel in zip(*ANCHORS, strict=True)]
    return np.stack(channels, axis=1).round().astype(np.uint8)


HEAT_COLORS = _color_table()
"""Colours (256, 3) from the weakest to the strongest heat; darker as it gets stronger, for readers who see no hue."""


def overlay_heat_map(
    image: ArrayLike, heat: ArrayLike, low: float, high: float, alpha: float = OPACITY
) -> NDArray[np.uint8]:
    """
    Lay a heat map over a radiograph: no colour where the heat is at most ``low``, the strongest from ``high`` on.

    Between the two, opacity and place in ``HEAT_COLORS`` grow in proportion to the heat, in 255 steps. With the same
    ``low`` and ``high`` the same colour means the same heat in all pictures.

    Args:
        image: radiograph ``(H, W)`` in [0, 1].
        heat: heat map ``(H, W)``, larger is hotter; infinite values are the coldest and the hottest.
        low: largest heat that is not shown.
        high: smallest heat that is shown in the strongest colour.
        alpha: opacity of the strongest colour, in (0, 1].

    Returns:
        ``(H, W, 3)``, the colours red, green and blue.

    Raises:
        ValueError: for other shapes, an image beyond [0, 1], NaN, or a range or opacity that is none.

    Example:
        >>> overlay_heat_map([[0.0, 0.0, 1.0]], [[0.1, 0.2, 0.9]], low=0.2, high=0.8, alpha=1.0).tolist()
        [[[0, 0, 0], [0, 0, 0], [190, 0, 70]]]
    """
    picture, values = np.asarray(image, dtype=np.float32), np.asarray(heat, dtype=np.float64)
    _check_pictures(picture, values)
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(f"low must be below high and both finite, got {low} and {high}: take quantiles of the heat")
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be in (0, 1], got {alpha}")
    level = np.subtract(values, low)
    with np.errstate(over="ignore"):  # a huge heat becomes infinite, the hottest
        level *= (LEVELS - 1) / (high - low)
    gray = np.multiply(picture, LEVELS - 1)
    for numbers in (level, gray):  # in place: memory is what takes the time
        numbers += 0.5
        np.clip(numbers, 0, LEVELS - 1, out=numbers)
    entries = gray.astype(np.uint16) * np.uint16(LEVELS) + level.astype(np.uint16)
    return _blend_table(float(alpha)).take(entries, axis=0)


@lru_cache(maxsize=8)
def _blend_table(alpha: float) -> NDArray[np.uint8]:
    """The colour of each level of gray under each level of heat, (256 * 256, 3), heat running fastest."""
    opacity = np.linspace(0, alpha, LEVELS)[:, None]
    gray = np.arange(LEVELS)[:, None, None]
    return (gray * (1 - opacity) + HEAT_COLORS * opacity + 0.5).astype(np.uint8).reshape(-1, 3)


def _check_pictures(picture: NDArray, values: NDArray) -> None:
    if picture.ndim != 2 or picture.shape != values.shape or picture.size == 0:
        raise ValueError(
            f"image of shape {picture.shape} and heat of shape {values.shape} are not two pictures (H, W): take one "
            "channel, and resize the heat map to the image first"
        )
    if not (picture.min() >= -1e-3 and picture.max() <= 1 + 1e-3):
        raise ValueError(
            f"the image has values from {picture.min():g} to {picture.max():g} instead of [0, 1]: give the radiograph "
            "as it was before normalisation"
        )
    bad = int(np.isnan(values).sum())
    if bad:
        raise ValueError(f"{bad} of {values.size} pixels of the heat map are NaN: exploded or wrongly loaded weights")
