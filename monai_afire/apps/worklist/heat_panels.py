# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heat maps as a reader sees them: the strongest zone outlined, beside the radiograph, with title and color bar."""

from __future__ import annotations

import textwrap
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw
from skimage.measure import label

from monai_afire.apps.results.pictures.draw import mask_outlines, text_picture, text_size
from monai_afire.apps.results.pictures.heat_map import MARK_COLOR, overlay_heat_map

KEY = (
    "no color: as in normal images",
    "yellow: hotter than 95 % of normal patches",
    "red: hotter than any normal patch",
)
"""What the heat's colors mean, from the weakest on."""
KEY_STARTS = (0.0, 0.3, 0.7)
"""Where each of these begins on the key, in shares of its length; between yellow and red the colors change."""

_ZONE = 0.5  # of the strongest heat above the lowest that is shown
_MEDIUM_GRAY = 0.5  # what the colors of the bar lie on, since they are transparent
_LINE_LETTERS = 15  # of the words beside the bar


def hottest_zone(heat: ArrayLike, low: float) -> NDArray[np.bool_]:
    """Connected zone around the strongest heat of a map ``(H, W)``, where it is at least half of that above ``low``."""
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
    Lay a heat map over a radiograph so that weak heat is seen, too, and outline the zone of the strongest.

    Colors mean the same heat in all pictures, and are equally opaque. Arguments are those of :func:`heat_panels`.
    """
    overlay = overlay_heat_map(image, heat, low, high, fades=False)
    picture = Image.fromarray(overlay)
    draw = ImageDraw.Draw(picture)
    width = max(1, round(max(picture.size) / 250))
    for line in mask_outlines(hottest_zone(heat, low)):
        draw.line([(x - 0.5, y - 0.5) for x, y in line], fill=MARK_COLOR, width=width)
    return np.asarray(picture)


def heat_panels(
    image: ArrayLike, heat: ArrayLike, low: float, high: float, title: str
) -> NDArray[np.uint8]:
    """
    Draw a radiograph, beside it the same with its heat map, and what its colors mean, on black.

    The bar beside it has the very colors that the heat has on medium gray. It is drawn without matplotlib, which would
    take ten times as long as the network.

    Args:
        image: radiograph ``(H, W)`` in [0, 1].
        heat: heat map ``(H, W)``, larger is hotter.
        low: largest heat that is not shown: what 95 % of normal patches do not exceed.
        high: smallest heat that is shown in the strongest color: more than any normal patch has.
        title: one line above both.

    Returns:
        ``(rows, columns, 3)``, the colors red, green and blue; large enough for radiographs and texts.
    """
    gray = np.asarray(image, dtype=np.float32)
    overlay = emphasized_heat_map(gray, heat, low, high)
    rows, columns = gray.shape
    text = text_size(gray)
    gap, header = text // 2, 2 * text
    heading, bar = text_picture(title, text), _color_bar(rows, text)
    width = max(2 * columns + gap + bar.width, heading.width + 2 * gap)
    canvas = Image.new("RGB", (width, header + max(rows, bar.height)))
    canvas.paste(heading, (gap, (header - heading.height) // 2))
    canvas.paste(gray_picture(gray).convert("RGB"), (0, header))
    canvas.paste(Image.fromarray(overlay), (columns + gap, header))
    canvas.paste(bar, (2 * columns + gap, header))
    return np.asarray(canvas)


def gray_picture(image: NDArray[np.float32]) -> Image.Image:
    """A radiograph ``(H, W)`` in [0, 1] in 8 bits."""
    return Image.fromarray(np.rint(255 * image.clip(0, 1)).astype(np.uint8))


@lru_cache(maxsize=16)  # it does not depend on the image
def _color_bar(rows: int, text: int) -> Image.Image:
    """Colors from the strongest down to none, a line where yellow and red begin, and their words above each."""
    texts = [_lines(words, text) for words in KEY]
    shares = np.diff([*KEY_STARTS, 1])
    needed = [each.height / share for each, share in zip(texts, shares, strict=True)]
    height = max(rows, int(np.ceil(max(needed))) + 2 * text)
    _, low, high = KEY_STARTS
    places = np.linspace(1, 0, height)[:, None]
    gray = np.full((height, 1), _MEDIUM_GRAY)
    colors = Image.fromarray(overlay_heat_map(gray, places, low, high, fades=False))
    left = text + text // 2  # of the words
    width = left + max(each.width for each in texts) + text // 2
    canvas = Image.new("RGB", (width, height))
    canvas.paste(colors.resize((text, height), Image.Resampling.NEAREST), (text // 4, 0))
    draw = ImageDraw.Draw(canvas)
    for start, each in zip(KEY_STARTS, texts, strict=True):
        row = round((1 - start) * (height - 1))
        if start:
            draw.line([(text // 4, row), (width - text // 2, row)], fill="white")
        canvas.paste(each, (left, row - each.height))
    return canvas


def _lines(words: str, text: int) -> Image.Image:
    """Words in as many lines as they need."""
    lines = [text_picture(line, text) for line in textwrap.wrap(words, _LINE_LETTERS)]
    size = (max(line.width for line in lines), sum(line.height for line in lines))
    canvas = Image.new("RGB", size)
    for place, line in enumerate(lines):
        canvas.paste(line, (0, place * line.height))
    return canvas
