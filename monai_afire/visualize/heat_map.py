# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps laid over radiographs, and beside them, with title and color bar."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw
from skimage.measure import label

from monai_afire.visualize.captions import text_picture, text_size
from monai_afire.visualize.figures import mask_outlines

LEVELS = 256
OPACITY = 0.45  # of the strongest color: more would hide what the radiograph shows below it
_ZONE = 0.5  # of the strongest heat above the lowest that is shown
ANCHORS = ((255, 225, 60), (255, 150, 30), (240, 50, 30), (190, 0, 70))
# cyan, as in no radiograph or heat map, seen on black and on white: frames, outlines
MARK_COLOR = "#00E5FF"

_COLOR_MAP = LinearSegmentedColormap.from_list("heat", np.divide(ANCHORS, 255), N=LEVELS)

HEAT_COLORS: NDArray[np.uint8] = np.rint(255 * _COLOR_MAP(np.arange(LEVELS))[:, :3]).astype(
    np.uint8
)
"""Colors (256, 3) from the weakest to the strongest heat; darker as it gets stronger, for readers who see no hue."""


def overlay_heat_map(
    image: ArrayLike,
    heat: ArrayLike,
    low: float,
    high: float,
    alpha: float = OPACITY,
    top: float | None = None,
) -> NDArray[np.uint8]:
    """
    Lay a heat map over a radiograph: no color where the heat is at most ``low``, the strongest from ``high`` on.

    Between the two, opacity and place in ``HEAT_COLORS`` grow in proportion to the heat, in 255 steps. With the same
    ``low`` and ``high`` the same color means the same heat in all pictures. A ``top`` lets weak heat be seen: the
    opacity then grows up to that heat, while the colors stay.

    Args:
        image: radiograph ``(H, W)`` in [0, 1].
        heat: heat map ``(H, W)``, larger is hotter; infinite values are the coldest and the hottest.
        low: largest heat that is not shown.
        high: smallest heat that is shown in the strongest color.
        alpha: opacity of the strongest color, in (0, 1].
        top: smallest heat of full opacity, above ``low`` and at most ``high``; None for ``high``.

    Returns:
        ``(H, W, 3)``, the colors red, green and blue.

    Raises:
        ValueError: for other shapes, an image beyond [0, 1], NaN, or a range or opacity that is none.

    Example:
        >>> overlay_heat_map([[0.0, 0.0, 1.0]], [[0.1, 0.2, 0.9]], low=0.2, high=0.8, alpha=1.0).tolist()
        [[[0, 0, 0], [0, 0, 0], [190, 0, 70]]]
    """
    picture, values = np.asarray(image, dtype=np.float32), np.asarray(heat, dtype=np.float64)
    _check_pictures(picture, values)
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(
            f"low must be below high and both finite, got {low} and {high}: take quantiles of the heat"
        )
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be in (0, 1], got {alpha}")
    top = high if top is None else top
    if not low < top <= high:
        raise ValueError(f"top must be above {low} and at most {high}, got {top}")
    level = np.subtract(values, low)
    with np.errstate(over="ignore"):  # a huge heat becomes infinite, the hottest
        level *= (LEVELS - 1) / (top - low)
    gray = np.multiply(picture, LEVELS - 1)
    for numbers in (level, gray):  # in place: memory is what takes the time
        numbers += 0.5
        np.clip(numbers, 0, LEVELS - 1, out=numbers)
    entries = gray.astype(np.uint16) * np.uint16(LEVELS) + level.astype(np.uint16)
    strongest = max(1, round((LEVELS - 1) * (top - low) / (high - low)))
    return _blend_table(float(alpha), strongest).take(entries, axis=0)


@lru_cache(maxsize=16)
def _blend_table(alpha: float, strongest: int = LEVELS - 1) -> NDArray[np.uint8]:
    """The color of each level of gray under each level of heat, (256 * 256, 3), heat running fastest."""
    opacity = np.linspace(0, alpha, LEVELS)[:, None]
    colors = HEAT_COLORS[np.rint(np.linspace(0, strongest, LEVELS)).astype(int)]
    gray = np.arange(LEVELS)[:, None, None]
    return (gray * (1 - opacity) + colors * opacity + 0.5).astype(np.uint8).reshape(-1, 3)


def own_top(heat: ArrayLike, low: float, high: float) -> float:
    """
    Heat of full opacity in one image: its largest, within the range that all images share.

    Args:
        heat: heat map ``(H, W)``.
        low: largest heat that is not shown.
        high: smallest heat that is shown in the strongest color.

    Returns:
        In (low, high]; ``high`` where nothing is shown.

    Example:
        >>> own_top([[0.1, 0.5]], 0.2, 0.8), own_top([[0.1, 2.0]], 0.2, 0.8), own_top([[0.1]], 0.2, 0.8)
        (0.5, 0.8, 0.8)
    """
    largest = float(np.max(heat))
    return min(largest, high) if largest > low else high


def hottest_zone(heat: ArrayLike, low: float) -> NDArray[np.bool_]:
    """
    The connected zone around the strongest heat, where it is at least half of that above ``low``.

    Args:
        heat: heat map ``(H, W)``.
        low: largest heat that is not shown.

    Returns:
        ``(H, W)``; all False where no heat is above ``low``.

    Example:
        >>> hottest_zone([[0.0, 0.4, 1.0, 0.7, 0.0, 0.9]], low=0.2)
        array([[False, False,  True,  True, False, False]])
    """
    values = np.asarray(heat, dtype=np.float64)
    largest = values.max()
    if not (largest > low and np.isfinite(largest)):
        return np.zeros(values.shape, dtype=bool)
    zones = label(values >= low + _ZONE * (largest - low))
    return zones == zones[np.unravel_index(values.argmax(), values.shape)]


def emphasized_heat_map(
    image: ArrayLike, heat: ArrayLike, low: float, high: float
) -> NDArray[np.uint8]:
    """
    Lay a heat map over a radiograph so that the image's own strongest heat is seen, its zone outlined.

    Colors mean the same heat in all pictures. The opacity grows up to the image's own largest heat.

    Args:
        image: radiograph ``(H, W)`` in [0, 1].
        heat: heat map ``(H, W)``, larger is hotter.
        low: largest heat that is not shown.
        high: smallest heat that is shown in the strongest color.

    Returns:
        ``(H, W, 3)``, the colors red, green and blue.

    Raises:
        ValueError: as :func:`overlay_heat_map`.

    Example:
        >>> heat = np.pad(np.ones((2, 2)), 4)
        >>> picture = emphasized_heat_map(np.zeros((10, 10)), heat, 0.5, 10.0)
        >>> picture[0, 0].tolist(), picture[4, 3].tolist()
        ([0, 0, 0], [0, 229, 255])
    """
    overlay = overlay_heat_map(image, heat, low, high, top=own_top(heat, low, high))
    picture = Image.fromarray(overlay)
    draw = ImageDraw.Draw(picture)
    width = max(1, round(max(picture.size) / 250))
    for line in mask_outlines(hottest_zone(heat, low)):
        draw.line([(x - 0.5, y - 0.5) for x, y in line], fill=MARK_COLOR, width=width)
    return np.asarray(picture)


def _check_pictures(picture: NDArray, values: NDArray) -> None:
    if picture.ndim != 2 or picture.shape != values.shape or picture.size == 0:
        shapes = f"image of shape {picture.shape} and heat of shape {values.shape}"
        raise ValueError(
            f"{shapes} are not two pictures (H, W): take one channel, and resize the heat map"
        )
    if not (picture.min() >= -1e-3 and picture.max() <= 1 + 1e-3):
        found = (
            f"the image has values from {picture.min():g} to {picture.max():g} instead of [0, 1]"
        )
        raise ValueError(f"{found}: give the radiograph as it was before normalization")
    bad = int(np.isnan(values).sum())
    if bad:
        raise ValueError(
            f"{bad} of {values.size} pixels of the heat map are NaN: exploded or wrongly loaded weights"
        )


_MEDIUM_GRAY = 0.5  # what the colors of the bar lie on, since the weak ones are transparent


def heat_panels(
    image: ArrayLike, heat: ArrayLike, low: float, high: float, title: str, unit: str
) -> NDArray[np.uint8]:
    """
    Draw a radiograph, beside it the same with its heat map, and a color bar of all images' scale, on black.

    See :func:`emphasized_heat_map` for the heat map.

    Neither is turned or mirrored: left and right are those of the image given. It is drawn without matplotlib, which
    would take ten times as long as the network.

    Args:
        image: radiograph ``(H, W)`` in [0, 1].
        heat: heat map ``(H, W)``, larger is hotter.
        low: largest heat that is not shown, see :func:`monai_afire.visualize.overlay_heat_map`.
        high: smallest heat that is shown in the strongest color.
        title: one line above both.
        unit: of the heat, beside the color bar.

    Returns:
        ``(rows, columns, 3)``, the colors red, green and blue; large enough for radiographs and texts.

    Raises:
        ValueError: as :func:`monai_afire.visualize.overlay_heat_map`.

    Example:
        >>> picture = heat_panels(np.full((64, 48), 0.5), np.zeros((64, 48)), 0.0, 1.0, "score 0.1", "heat")
        >>> picture.dtype, picture.shape[0] > 64, picture.shape[1] > 2 * 48
        (dtype('uint8'), True, True)
    """
    gray = np.asarray(image, dtype=np.float32)
    overlay = emphasized_heat_map(gray, heat, low, high)
    rows, columns = gray.shape
    text = text_size(gray)
    gap, header = text // 2, 2 * text
    heading, bar = text_picture(title, text), _color_bar(low, high, unit, rows, text)
    width = max(2 * columns + gap + bar.width, heading.width + 2 * gap)
    canvas = Image.new("RGB", (width, header + max(rows, bar.height)))
    canvas.paste(heading, (gap, (header - heading.height) // 2))
    canvas.paste(
        Image.fromarray(np.rint(255 * gray.clip(0, 1)).astype(np.uint8)).convert("RGB"), (0, header)
    )
    canvas.paste(Image.fromarray(overlay), (columns + gap, header))
    canvas.paste(bar, (2 * columns + gap, header))
    return np.asarray(canvas)


def _color_bar(low: float, high: float, unit: str, rows: int, text: int) -> Image.Image:
    """Colors from the strongest down to none, their heat, and its unit along them."""
    meaning = text_picture(unit, text).rotate(90, expand=True)
    height = max(rows, meaning.height)
    heat = np.linspace(high, low, height)[:, None]
    colors = overlay_heat_map(np.full((height, 1), _MEDIUM_GRAY), heat, low, high, 2 * OPACITY)
    ticks = np.linspace(high, low, 5 if height > 10 * text else 2)
    numbers = [f"{tick:.1f}" for tick in ticks]
    texts = [
        text_picture(words, text)
        for words in (f"≥ {numbers[0]}", *numbers[1:-1], f"≤ {numbers[-1]}")
    ]
    left = text + text // 2  # of the numbers
    right = left + max(each.width for each in texts) + text // 2
    canvas = Image.new("RGB", (right + meaning.width + text // 2, height))
    canvas.paste(
        Image.fromarray(colors).resize((text, height), Image.Resampling.NEAREST), (text // 4, 0)
    )
    for each, place in zip(texts, np.linspace(0, 1, len(texts)), strict=True):
        canvas.paste(each, (left, round(place * (height - each.height))))
    canvas.paste(meaning, (right, (height - meaning.height) // 2))
    return canvas
