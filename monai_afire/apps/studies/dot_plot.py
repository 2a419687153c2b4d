# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dot plots: values of several series for each of many items."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from monai_afire.apps.results.pictures.style import (
    frame,
    legend_below,
    legend_columns,
    plot_figure,
    series_style,
)

_WIDTH = 6.4


def dot_plot(
    values: pd.DataFrame, title: str, label: str, limits: tuple[float, float | None] = (0.0, None)
) -> Figure:
    """
    A line for each item, with a mark for each series.

    Args:
        values: items in the rows, series in the columns; NaN is not drawn.
        title: of the figure.
        label: what the values are.
        limits: of the axis of values; None for what the values need.

    Returns:
        The figure.

    Raises:
        ValueError: without an item or a series.

    Example:
        >>> figure = dot_plot(pd.DataFrame({"mine": [1.0, 2.0]}, index=["carina", "hilum"]), "Errors", "pixels")
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['carina', 'hilum']
    """
    if values.empty:
        raise ValueError(
            f"nothing to draw: values are {values.shape[0]} items of {values.shape[1]} series"
        )
    series = [str(name) for name in values.columns]
    legend_rows = -(-len(series) // legend_columns(series, _WIDTH))
    figure = plot_figure(_WIDTH, 1.0 + 0.22 * len(values) + 0.17 * legend_rows)
    axis = figure.subplots()
    rows = range(len(values))
    handles = [
        axis.plot(
            values[name].to_numpy(dtype=float),
            rows,
            linestyle="",
            markersize=5.5,
            alpha=0.85,
            **series_style(number),
        )[0]
        for number, name in enumerate(values.columns)
    ]
    frame(axis, title, label, grid="both")
    axis.set_yticks(rows, [str(name) for name in values.index], parse_math=False)
    axis.set_ylim(len(values) - 0.5, -0.5)  # the first item on top
    axis.set_xlim(*limits)
    legend_below(figure, handles, series)
    return figure
