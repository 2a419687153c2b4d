# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is drawn onto radiographs: outlines of masks, landmarks, legends and captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont
from skimage.measure import find_contours

Color = tuple[int, int, int]

TRUTH_COLOR: Color = (0, 229, 255)
"""Cyan: what is known."""

CLASS_COLORS: tuple[Color, ...] = (
    (255, 140, 0),
    (255, 235, 60),
    (255, 60, 190),
    (130, 255, 60),
    (255, 60, 50),
    (175, 130, 255),
)
"""Of predictions; they show on black and on white, and none is near the color of the truth."""

NOT_CLINICAL = "not for clinical use"
SMOOTHING = 2  # pictures are drawn so many times larger, then reduced
TRUTH_WIDTH, PREDICTED_WIDTH = 4, 2  # both can be seen where one lies on the other

# Pillow's own has no sign for "at least"
_FONT = Path(mpl.get_data_path(), "fonts/ttf/DejaVuSans.ttf")
_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)
_SMALLEST_TEXT = 10  # pixels
_TEXT_PER_SIDE = 1 / 30  # size of the text in sides of the radiograph


def class_color(number: int) -> Color:
    """Color of a class's predictions; after the last one they repeat."""
    return CLASS_COLORS[number % len(CLASS_COLORS)]


def outline_picture(
    image: ArrayLike, predicted: ArrayLike, truth: ArrayLike | None = None, side: int = 512
) -> NDArray[np.uint8]:
    """
    A radiograph with the outlines of masks: the truth as broad cyan lines, predictions as fine ones on top.

    The image ``(H, W)`` is stretched to [0, 1] where it leaves that range. Masks are ``(C, h, w)``, non-zero inside;
    each channel of ``predicted`` has the color of its class. The picture ``(rows, columns, 3)`` has a longer side of
    ``side`` pixels.
    """
    canvas = _canvas(image, side)
    if truth is not None:
        _draw_outlines(canvas, truth, [TRUTH_COLOR] * len(np.asarray(truth)), TRUTH_WIDTH)
    colors = [class_color(number) for number in range(len(np.asarray(predicted)))]
    _draw_outlines(canvas, predicted, colors, PREDICTED_WIDTH)
    return np.asarray(canvas.reduce(SMOOTHING))


def outlined(picture: Image.Image, mask: ArrayLike) -> NDArray[np.uint8]:
    """A picture in colors with the outline of what is known, a mask ``(h, w)``."""
    size = picture.width * SMOOTHING, picture.height * SMOOTHING
    canvas = picture.resize(size, Image.Resampling.NEAREST)
    _draw_outlines(canvas, np.asarray(mask)[None], [TRUTH_COLOR], PREDICTED_WIDTH)
    return np.asarray(canvas.reduce(SMOOTHING))


def _draw_outlines(
    canvas: Image.Image, masks: ArrayLike, colors: Sequence[Color], width: int
) -> None:
    stack, draw = np.asarray(masks) != 0, ImageDraw.Draw(canvas)
    scale = np.array([canvas.width / stack.shape[2], canvas.height / stack.shape[1]])
    for mask, color in zip(stack, colors, strict=True):
        for line in mask_outlines(mask):
            points = [tuple(point) for point in line * scale]
            draw.line(points, fill=color, width=SMOOTHING * width, joint="curve")


def mask_outlines(mask: NDArray) -> list[NDArray]:
    """Closed lines of points ``(n, 2)``, x before y, around a mask, where pixel i covers [i, i + 1]."""
    lines = find_contours(np.pad(mask != 0, 1).astype(np.float32), 0.5)
    return [line[:, ::-1] - 0.5 for line in lines]


def landmark_picture(
    image: ArrayLike, predicted: ArrayLike, truth: ArrayLike | None = None, side: int = 512
) -> NDArray[np.uint8]:
    """
    A radiograph with landmarks: the truth as cyan rings, predictions as orange dots, a line between the two.

    Landmarks are ``(P, 2)``, row and column in pixels of the image, 0 at the center of the first; NaN is not drawn.
    Image and picture are those of :func:`outline_picture`.
    """
    canvas = _canvas(image, side)
    points = np.asarray(predicted, dtype=float)
    targets = np.full_like(points, np.nan) if truth is None else np.asarray(truth, dtype=float)
    scale = canvas.width / np.asarray(image).shape[1]
    # x before y, in the coordinates of the canvas, where a pixel's center lies half a pixel inside
    points, targets = ((p[:, ::-1] + 0.5) * scale for p in (points, targets))
    draw, radius, width = ImageDraw.Draw(canvas), max(canvas.size) / 110, round(1.5 * SMOOTHING)
    for point, target in zip(points, targets, strict=True):
        if np.isfinite([point, target]).all():
            draw.line([tuple(target), tuple(point)], fill=CLASS_COLORS[0], width=width)
    ring, dot = {"outline": TRUTH_COLOR, "width": width}, {"fill": CLASS_COLORS[0]}
    for centers, size, style in ((targets, 1.5 * radius, ring), (points, 0.7 * radius, dot)):
        for x, y in centers[np.isfinite(centers).all(1)]:
            draw.ellipse([x - size, y - size, x + size, y + size], **style)
    return np.asarray(canvas.reduce(SMOOTHING))


def _canvas(image: ArrayLike, side: int) -> Image.Image:
    """The picture in colors, larger than wanted by SMOOTHING."""
    values = np.asarray(image, dtype=np.float32)
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        values = (values - low) / (high - low or 1.0)
    factor = side * SMOOTHING / max(values.shape)
    # a multiple of SMOOTHING, so that no part of a pixel is left when the picture is reduced
    height, width = (
        max(1, round(factor * length / SMOOTHING)) * SMOOTHING for length in values.shape
    )
    gray = Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))
    return gray.resize((width, height), Image.Resampling.BILINEAR).convert("RGB")


def captioned(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture ``(H, W, 3)`` that says in its lower left corner that it is no clinical result."""
    size = text_size(picture)
    place = (size // 2, picture.shape[0] - size // 2)
    return _with_texts(picture, {NOT_CLINICAL: _WHITE}, place, "ls")


def with_legend(picture: NDArray[np.uint8], legend: Mapping[str, Color]) -> NDArray[np.uint8]:
    """A picture ``(H, W, 3)`` with names in their colors in its upper left corner; what does not fit is cut."""
    size = text_size(picture)
    return _with_texts(picture, legend, (size // 2, size // 2), "la")


def _with_texts(
    picture: NDArray[np.uint8], texts: Mapping[str, Color], place: tuple[int, int], anchor: str
) -> NDArray[np.uint8]:
    """A picture with lines of text in their colors, with black edges, the first one at a place (x, y)."""
    size, canvas = text_size(picture), Image.fromarray(picture)
    edge: dict[str, Any] = {"stroke_width": max(1, size // 10), "stroke_fill": _BLACK}
    font, draw = ImageFont.truetype(_FONT, size), ImageDraw.Draw(canvas)
    for line, (text, color) in enumerate(texts.items()):
        at = (place[0], place[1] + round(1.3 * size * line))
        draw.text(at, text, color, font, anchor, **edge)
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
