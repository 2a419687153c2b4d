# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lines of text in pictures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

NOT_CLINICAL = "not for clinical use"

# Pillow's own has no sign for "at least"
_FONT = Path(mpl.get_data_path(), "fonts/ttf/DejaVuSans.ttf")
_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)
_SMALLEST_TEXT = 10  # pixels
_TEXT_PER_SIDE = 1 / 30  # size of the text in sides of the radiograph


def captioned(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """
    Write that it is no clinical result into the lower left corner of a picture; what does not fit is cut.

    Args:
        picture: ``(H, W, 3)``.

    Returns:
        The new picture.

    Example:
        >>> captioned(np.zeros((300, 200, 3), np.uint8)).max()
        np.uint8(255)
    """
    size, canvas = text_size(picture), Image.fromarray(picture)
    place = (size // 2, picture.shape[0] - size // 2)
    font = ImageFont.truetype(_FONT, size)
    ImageDraw.Draw(canvas).text(
        place, NOT_CLINICAL, _WHITE, font, "ls", stroke_width=max(1, size // 10), stroke_fill=_BLACK
    )
    return np.asarray(canvas)


def with_legend(
    picture: NDArray[np.uint8], legend: Mapping[str, tuple[int, int, int]]
) -> NDArray[np.uint8]:
    """
    Write names in their colors into the upper left corner of a picture; what does not fit is cut.

    Args:
        picture: ``(H, W, 3)``.
        legend: name -> its color.

    Returns:
        The new picture.

    Example:
        >>> with_legend(np.zeros((90, 90, 3), np.uint8), {"heart": (255, 0, 0)})[..., 0].max()
        np.uint8(255)
    """
    size, canvas = text_size(picture), Image.fromarray(picture)
    font, draw = ImageFont.truetype(_FONT, size), ImageDraw.Draw(canvas)
    for line, (name, color) in enumerate(legend.items()):
        place = (size // 2, size // 2 + round(1.3 * size * line))
        edge = max(1, size // 10)
        draw.text(place, name, color, font, "la", stroke_width=edge, stroke_fill=_BLACK)
    return np.asarray(canvas)


def text_size(picture: NDArray) -> int:
    """Pixels of the letters beside a picture ``(H, W, ...)``."""
    return max(_SMALLEST_TEXT, round(_TEXT_PER_SIDE * max(picture.shape[:2])))


@lru_cache(maxsize=256)  # of a run all but the titles are the same
def text_picture(text: str, size: int) -> Image.Image:
    """White text on black, as wide as it needs."""
    font = ImageFont.truetype(_FONT, size)
    canvas = Image.new("RGB", (max(1, round(font.getlength(text))), round(1.3 * size)))
    ImageDraw.Draw(canvas).text((0, size), text, fill=_WHITE, font=font, anchor="ls")
    return canvas
