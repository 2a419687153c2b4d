# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps as a reader sees them: the strongest zone outlined, beside the radiograph, with title and color bar."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw
from skimage.measure import label

from monai_afire.apps.results.pictures.captions import text_picture, text_size
from monai_afire.visualize.figures import mask_outlines
from monai_afire.visualize.heat_map import MARK_COLOR, OPACITY, overlay_heat_map

_ZONE = 0.5  # of the strongest heat above the lowest that is shown
_MEDIUM_GRAY = 0.5  # what the colors of the bar lie on, since the weak ones are transparent


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
        ValueError: as :func:`monai_afire.visualize.overlay_heat_map`.

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
