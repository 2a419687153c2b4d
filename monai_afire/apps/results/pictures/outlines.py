# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Radiographs with outlines of masks or with landmarks, predicted and true, and sheets of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw
from skimage.measure import find_contours

from monai_afire.apps.results.pictures.style import legend_below, wrapped_title
from monai_afire.visualize.figures import save_figure

Color = tuple[int, int, int]

TRUTH_COLOR: Color = (0, 229, 255)
"""Cyan, as on the contact sheets: what is known."""

CLASS_COLORS: tuple[Color, ...] = (
    (255, 140, 0),
    (255, 235, 60),
    (255, 60, 190),
    (130, 255, 60),
    (255, 60, 50),
    (175, 130, 255),
)
"""Of predictions; they show on black and on white, and none is near the color of the truth."""

SMOOTHING = 2  # pictures are drawn so many times larger, then reduced
TRUTH_WIDTH, PREDICTED_WIDTH = 4, 2  # both can be seen where one lies on the other
PICTURE_INCHES, DPI, TITLE_COLUMNS, TITLE_LINES = 2.6, 200, 46, 3


def class_color(number: int) -> Color:
    """Color of a class's predictions; after the last one they repeat."""
    return CLASS_COLORS[number % len(CLASS_COLORS)]


def outline_picture(
    image: ArrayLike, predicted: ArrayLike, truth: ArrayLike | None = None, side: int = 512
) -> NDArray[np.uint8]:
    """A radiograph with the outlines of masks: the truth as broad cyan lines, predictions as fine ones on top."""
    canvas = _canvas(image, side)
    draw = ImageDraw.Draw(canvas)
    for masks, is_truth in ((truth, True), (predicted, False)):
        if masks is None:
            continue
        stack = np.asarray(masks)
        if stack.ndim != 3 or 0 in stack.shape:
            raise ValueError(
                f"masks must be (C, h, w) with pixels, one channel per class, got {stack.shape}"
            )
        scale = np.array([canvas.width / stack.shape[2], canvas.height / stack.shape[1]])
        for number, mask in enumerate(stack != 0):
            color = TRUTH_COLOR if is_truth else class_color(number)
            width = SMOOTHING * (TRUTH_WIDTH if is_truth else PREDICTED_WIDTH)
            for line in mask_outlines(mask):
                points = [tuple(point) for point in line * scale]
                draw.line(points, fill=color, width=width, joint="curve")
    return np.asarray(canvas.reduce(SMOOTHING))


def landmark_picture(
    image: ArrayLike, predicted: ArrayLike, truth: ArrayLike | None = None, side: int = 512
) -> NDArray[np.uint8]:
    """A radiograph with landmarks: the truth as cyan rings, predictions as orange dots, a line between the two."""
    canvas = _canvas(image, side)
    points = np.asarray(predicted, dtype=float)
    targets = np.full_like(points, np.nan) if truth is None else np.asarray(truth, dtype=float)
    if points.ndim != 2 or points.shape[1] != 2 or points.shape != targets.shape:
        raise ValueError(
            f"landmarks must be (P, 2), row and column, got {points.shape} and {targets.shape}"
        )
    scale = canvas.width / np.asarray(image).shape[1]
    # x before y, in the coordinates of the canvas, where a pixel's center lies half a pixel inside
    points, targets = ((p[:, ::-1] + 0.5) * scale for p in (points, targets))
    draw, radius = ImageDraw.Draw(canvas), max(canvas.size) / 110
    for point, target in zip(points, targets, strict=True):
        if np.isfinite([point, target]).all():
            draw.line(
                [tuple(target), tuple(point)], fill=CLASS_COLORS[0], width=round(1.5 * SMOOTHING)
            )
    for centers, size, style in (
        (targets, 1.5 * radius, {"outline": TRUTH_COLOR, "width": round(1.5 * SMOOTHING)}),
        (points, 0.7 * radius, {"fill": CLASS_COLORS[0]}),
    ):
        for x, y in centers[np.isfinite(centers).all(1)]:
            draw.ellipse([x - size, y - size, x + size, y + size], **style)
    return np.asarray(canvas.reduce(SMOOTHING))


def picture_sheet(
    pictures: Sequence[NDArray],
    titles: Sequence[str],
    path: str | os.PathLike | None,
    legend: Mapping[str, Color] | None = None,
    columns: int = 4,
    title: str = "",
) -> Figure:
    """A page of colored pictures in reading order, with a legend of the colors."""
    if not pictures or len(pictures) != len(titles) or columns < 1:
        given = f"{len(pictures)} pictures, {len(titles)} titles and {columns} columns"
        raise ValueError(
            f"{given}: give one picture or more, a title for each, and one column or more"
        )
    across = min(columns, len(pictures))
    down = -(-len(pictures) // across)
    headings = [wrapped_title(text, TITLE_COLUMNS, TITLE_LINES) for text in titles]
    heading_inches = 0.15 * (1 + max(heading.count("\n") for heading in headings))
    height = down * (PICTURE_INCHES + heading_inches) + 0.3 * (bool(title) + bool(legend)) + 0.1
    figure = Figure(figsize=(across * PICTURE_INCHES, height), dpi=DPI, layout="compressed")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, picture, heading in zip(axes, pictures, headings, strict=False):
        axis.imshow(picture)
        axis.set_title(heading, fontsize=7, pad=3, parse_math=False)
    for axis in axes[len(pictures) :]:
        axis.remove()
    if legend:
        _draw_legend(figure, legend)
    if title:
        figure.suptitle(title, fontsize=9, parse_math=False)
    save_figure(figure, path)
    return figure


def _draw_legend(figure: Figure, legend: Mapping[str, Color]) -> None:
    """Names beside lines in their colors, on gray: bright colors do not show on white."""
    handles = [
        Line2D([], [], color="#" + bytes(color).hex(), linewidth=3) for color in legend.values()
    ]
    legend_below(figure, handles, [*legend], facecolor="0.25", labelcolor="white")


def _canvas(image: ArrayLike, side: int) -> Image.Image:
    """The picture in colors, larger than wanted by SMOOTHING."""
    values = np.asarray(image, dtype=np.float32)
    if values.ndim != 2 or values.size == 0 or side < 1:
        raise ValueError(
            f"image must be (H, W) with pixels and side above 0, got {values.shape} and {side}"
        )
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError(
            "the image has pixels that are NaN or infinite: repair them, as LoadRadiograph does"
        )
    if low < 0 or high > 1:
        values = (values - low) / (high - low or 1.0)
    factor = side * SMOOTHING / max(values.shape)
    # a multiple of SMOOTHING, so that no part of a pixel is left when the picture is reduced
    height, width = (
        max(1, round(factor * length / SMOOTHING)) * SMOOTHING for length in values.shape
    )
    gray = Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))
    return gray.resize((width, height), Image.Resampling.BILINEAR).convert("RGB")


def mask_outlines(mask: NDArray) -> list[NDArray]:
    """Closed lines of points ``(n, 2)``, x before y, around a mask, where pixel i covers [i, i + 1]."""
    lines = find_contours(np.pad(mask != 0, 1).astype(np.float32), 0.5)
    return [line[:, ::-1] - 0.5 for line in lines]
