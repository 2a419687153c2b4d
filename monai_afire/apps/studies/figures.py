# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures that studies share: dot plots of values, and grids of pictures with boxes on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from monai_afire.apps.results.pictures import style
from monai_afire.apps.results.pictures.heat_map import MARK_COLOR

Box = tuple[float, float, float, float]
SHARE_LIMITS = (-0.03, 1.03)  # of an axis of shares, whose marks at 0 and 1 stay whole
_WIDTH = 6.4


def dot_plot(
    values: pd.DataFrame, title: str, label: str, limits: tuple[float, float | None] = (0.0, None)
) -> Figure:
    """
    A line for each item (the rows), with a mark for each series (the columns); NaN is not drawn.

    ``label`` says what the values are; limits of None are those that the values need.
    """
    series = [str(name) for name in values.columns]
    legend_rows = -(-len(series) // style.legend_columns(series, _WIDTH))
    figure = style.plot_figure(_WIDTH, 1.0 + 0.22 * len(values) + 0.17 * legend_rows)
    axis = figure.subplots()
    rows = range(len(values))
    marks: dict[str, Any] = {"linestyle": "", "markersize": 5.5, "alpha": 0.85}
    handles = [
        axis.plot(values[name].to_numpy(dtype=float), rows, **marks, **style.series_style(number))
        for number, name in enumerate(values.columns)
    ]
    style.frame(axis, title, label, grid="both")
    axis.set_yticks(rows, [str(name) for name in values.index], parse_math=False)
    axis.set_ylim(len(values) - 0.5, -0.5)  # the first item on top
    axis.set_xlim(*limits)
    style.legend_below(figure, [line for (line,) in handles], series)
    return figure


def boxed_pictures(
    pictures: Sequence[Sequence[NDArray]],
    boxes: Sequence[Sequence[Box]],
    row_names: Sequence[str],
    titles: Sequence[Sequence[str]],
    inches: float,
    title_size: float,
) -> Figure:
    """
    Rows of pictures in [0, 1], gray or in color, with a row's boxes drawn on all of them.

    A box is row, column, height, width in pixels. ``titles`` are above the pictures; of fewer rows than there are
    pictures, the first ones. A picture's side is given in inches, the titles' letters in points.
    """
    columns = max(len(row) for row in pictures)
    size = 0.9 + inches * columns, 0.4 + inches * len(pictures)
    figure = style.plot_figure(*size, pictures=True)
    axes = figure.subplots(len(pictures), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for row, row_pictures, row_boxes in zip(axes, pictures, boxes, strict=True):
        for axis, picture in zip(row, row_pictures, strict=False):
            axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
            for top, left, height, width in row_boxes:
                corner = (left - 0.5, top - 0.5)  # pixel i is drawn from i - 0.5 on
                box = Rectangle(corner, width, height, fill=False, edgecolor=MARK_COLOR)
                axis.add_patch(box).set_linewidth(1.2)
    for row, row_titles in zip(axes, titles, strict=False):
        for axis, title in zip(row, row_titles, strict=False):
            axis.set_title(title, fontsize=title_size, pad=2, parse_math=False)
    for row, name in zip(axes, row_names, strict=True):
        row[0].set_ylabel(name, fontsize=style.LABEL_SIZE, parse_math=False)
    return figure
