# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A radiograph beside its heat map, with title and colour bar: one picture that can be read alone."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from monai_afire.visualize.heat_map import overlay_heat_map

__all__ = ["heat_panels"]

_FONT = Path(mpl.get_data_path(), "fonts/ttf/DejaVuSans.ttf")  # Pillow's own has no sign for "at least"
_WHITE = (255, 255, 255)
_SMALLEST_TEXT = 10  # pixels
_TEXT_PER_SIDE = 1 / 30  # size of the text in sides of the radiograph
_MEDIUM_GRAY = 0.5  # what the colours of the bar lie on, since the weak ones are transparent


def heat_panels(image: ArrayLike, heat: ArrayLike, low: float, high: float, title: str, unit: str) -> NDArray[np.uint8]:
    """
    Draw a radiograph, beside it the same with its heat map, and a colour bar, on black.

    Neither is turned or mirrored: left and right are those of the image given. It is drawn without matplotlib, which
    would take ten times as long as the network.

    Args:
        image: radiograph ``(H, W)`` in [0, 1].
        heat: heat map ``(H, W)``, larger is hotter.
        low: largest heat that is not shown, see :func:`monai_afire.visualize.overlay_heat_map`.
        high: smallest heat that is shown in the strongest colour.
        title: one line above both.
        unit: of the heat, beside the colour bar.

    Returns:
        ``(rows, columns, 3)``, the colours red, green and blue; large enough for radiographs and texts.

    Raises:
        ValueError: as :func:`monai_afire.visualize.overlay_heat_map`.

    Example:
        >>> picture = heat_panels(np.full((64, 48), 0.5), np.zeros((64, 48)), 0.0, 1.0, "score 0.1", "heat")
        >>> picture.dtype, picture.shape[0] > 64, picture.shape[1] > 2 * 48
        (dtype('uint8'), True, True)
    """
    gray = np.asarray(image, dtype=np.float32)
    overlay = overlay_heat_map(gray, heat, low, high)
    rows, columns = gray.shape
    text = max(_SMALLEST_TEXT, round(_TEXT_PER_SIDE * max(rows, columns)))
    gap, header = text // 2, 2 * text
    label, bar = _text_picture(title, text), _color_bar(low, high, unit, rows, text)
    width = max(2 * columns + gap + bar.width, label.width + 2 * gap)
    canvas = Image.new("RGB", (width, header + max(rows, bar.height)))
    canvas.paste(label, (gap, (header - label.height) // 2))
    canvas.paste(Image.fromarray(np.rint(255 * gray.clip(0, 1)).astype(np.uint8)).convert("RGB"), (0, header))
    canvas.paste(Image.fromarray(overlay), (columns + gap, header))
    canvas.paste(bar, (2 * columns + gap, header))
    return np.asarray(canvas)


def _color_bar(low: float, high: float, unit: str, rows: int, text: int) -> Image.Image:
    """Colours from the strongest down to none, their heat, and its unit along them."""
    meaning = _text_picture(unit, text).rotate(90, expand=True)
    height = max(rows, meaning.height)
    heat = np.linspace(high, low, height)[:, None]
    colors = overlay_heat_map(np.full((height, 1), _MEDIUM_GRAY), heat, low, high)
    ticks = np.linspace(high, low, 5 if height > 10 * text else 2)
    numbers = [f"{tick:.1f}" for tick in ticks]
    labels = [_text_picture(words, text) for words in (f"≥ {numbers[0]}", *numbers[1:-1], f"≤ {numbers[-1]}")]
    left = text + text // 2  # of the labels
    right = left + max(label.width for label in labels) + text // 2
    canvas = Image.new("RGB", (right + meaning.width + text // 2, height))
    canvas.paste(Image.fromarray(colors).resize((text, height), Image.Resampling.NEAREST), (text // 4, 0))
    for label, place in zip(labels, np.linspace(0, 1, len(labels)), strict=True):
        canvas.paste(label, (left, round(place * (height - label.height))))
    canvas.paste(meaning, (right, (height - meaning.height) // 2))
    return canvas


@lru_cache(maxsize=256)  # of a run all but the titles are the same
def _text_picture(text: str, size: int) -> Image.Image:
    font = ImageFont.truetype(_FONT, size)
    canvas = Image.new("RGB", (max(1, round(font.getlength(text))), round(1.3 * size)))
    ImageDraw.Draw(canvas).text((0, size), text, fill=_WHITE, font=font, anchor="ls")
    return canvas
