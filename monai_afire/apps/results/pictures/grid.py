# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pages of pictures: one grid, with a legend, or with a bar of heat."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from monai_afire.apps.results.pictures.draw import Color, outlined
from monai_afire.apps.results.pictures.heat_map import LEVELS, overlay_heat_map
from monai_afire.apps.results.pictures.style import (
    LABEL_SIZE,
    TICK_SIZE,
    TITLE_SIZE,
    legend_below,
    wrapped_title,
)
from monai_afire.visualize.figures import save_figure

_INCHES, _DPI = 2.6, 200  # of a picture's width
_LETTERS_PER_INCH, _TITLE_LINES = 17, 3
_PAIR_SIDE, _PAIR_INCHES = 380, 3.8  # pixels of one picture of a pair, and inches of both


def image_grid(
    pictures: Sequence[NDArray],
    titles: Sequence[str],
    path: str | os.PathLike | None = None,
    legend: Mapping[str, Color] | None = None,
    columns: int = 4,
    title: str = "",
    inches: float = _INCHES,
) -> Figure:
    """
    A page of pictures in reading order, each below its title; long titles are broken and cut.

    Pictures are ``(H, W, 3)`` uint8, of any sizes, at least one; ``inches`` is the width of each. The legend below has
    names and their colors.
    """
    across = min(columns, len(pictures))
    down = -(-len(pictures) // across)
    letters = int(_LETTERS_PER_INCH * inches)
    headings = [wrapped_title(text, letters, _TITLE_LINES) for text in titles]
    heading = wrapped_title(title, int(across * inches * 14))
    tallest = max(picture.shape[0] / picture.shape[1] for picture in pictures)
    row = inches * tallest + 0.15 * (1 + max(text.count("\n") for text in headings))
    height = down * row + 0.2 * (1 + heading.count("\n")) + 0.3 * bool(legend)
    figure = Figure(figsize=(across * inches, height), dpi=_DPI, layout="compressed")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis, picture, text in zip(axes, pictures, headings, strict=False):
        axis.imshow(picture)
        axis.set_axis_off()
        axis.set_title(text, fontsize=TICK_SIZE, pad=3, parse_math=False)
    for axis in axes[len(pictures) :]:
        axis.remove()
    if legend:  # on gray: bright colors do not show on white
        colors = [f"#{bytes(color).hex()}" for color in legend.values()]
        lines = [Line2D([], [], color=color, linewidth=3) for color in colors]
        legend_below(figure, lines, [*legend], facecolor="0.25", labelcolor="white")
    figure.suptitle(heading, fontsize=TITLE_SIZE, parse_math=False)
    save_figure(figure, path)
    return figure


def contact_sheet(
    images: Sequence[ArrayLike],
    heat_maps: Sequence[ArrayLike],
    titles: Sequence[str],
    masks: Sequence[ArrayLike | None],
    heat_range: Sequence[float],
    title: str,
    meaning: str,
    path: str | os.PathLike | None = None,
) -> Figure:
    """
    A page of radiographs, each beside the same with its heat map: the same color means the same heat everywhere.

    Images are ``(H, W)`` in [0, 1], of any sizes, and heat maps of the same size. A mask ``(h, w)``, or None, is
    outlined in cyan. ``heat_range`` has the largest heat that is not shown, and the smallest in the strongest color.
    ``meaning`` of the heat stands beside its bar.
    """
    low, high = heat_range
    pairs = [
        _pair(np.asarray(image), np.asarray(heat), mask, low, high)
        for image, heat, mask in zip(images, heat_maps, masks, strict=True)
    ]
    figure = image_grid(pairs, titles, title=title, inches=_PAIR_INCHES)
    # as the colors look over a medium gray, since the weak ones are transparent
    levels = np.linspace(low, high, LEVELS)[None]
    colors = overlay_heat_map(np.full(levels.shape, 0.5), levels, low, high)[0] / 255
    mapped = ScalarMappable(Normalize(low, high), ListedColormap(colors))
    bar = figure.colorbar(mapped, ax=figure.axes, extend="both", fraction=0.05, aspect=25)
    bar.set_label(meaning, fontsize=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    save_figure(figure, path)
    return figure


def _pair(
    image: NDArray, heat: NDArray, mask: ArrayLike | None, low: float, high: float
) -> NDArray[np.uint8]:
    """A radiograph and the same with its heat map side by side, in the size that the page shows them in."""
    overlay = overlay_heat_map(image, heat, low, high)
    gray = np.rint(255 * image.clip(0, 1)).astype(np.uint8)
    factor = _PAIR_SIDE / max(image.shape)
    rows, columns = (max(1, round(factor * side)) for side in image.shape)
    method = Image.Resampling.BOX if factor < 1 else Image.Resampling.BILINEAR
    pictures = []
    for picture in (np.stack([gray] * 3, axis=-1), overlay):
        shown = Image.fromarray(picture).resize((columns, rows), method)
        pictures.append(np.asarray(shown) if mask is None else outlined(shown, mask))
    gap = np.full((rows, max(1, columns // 50), 3), 255, np.uint8)
    return np.hstack([pictures[0], gap, pictures[1]])
