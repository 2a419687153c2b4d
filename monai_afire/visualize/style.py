# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Common style of all plots: sizes, letters, and colours that colour-blind readers tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "CHANCE_COLOR",
    "HEAT_COLORS",
    "LABEL_SIZE",
    "MARK_COLOR",
    "SERIES_COLORS",
    "TICK_SIZE",
    "TITLE_SIZE",
    "frame",
    "legend_below",
    "legend_columns",
    "plot_figure",
    "series_style",
]

# Okabe and Ito's palette without black and yellow, which does not show on white
SERIES_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
SERIES_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HEAT_COLORS = "viridis"
MARK_COLOR = "#00E5FF"  # cyan, as in no radiograph or heat map, seen on black and on white: frames, outlines
CHANCE_COLOR = "0.25"

TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 9, 8, 7


def plot_figure(width: float, height: float, pictures: bool = False) -> Figure:
    """
    An empty figure whose parts are laid out without overlaps.

    Args:
        width: inches.
        height: inches.
        pictures: whether the axes show pictures of fixed proportions, which are then moved close to each other.

    Returns:
        The figure; add axes by ``subplots()``.

    Example:
        >>> plot_figure(4, 3).subplots(1, 2).shape
        (2,)
    """
    figure = Figure(figsize=(width, height), dpi=130)
    figure.set_layout_engine("compressed" if pictures else "constrained", h_pad=0.08, w_pad=0.06)
    return figure


def series_style(number: int) -> dict[str, Any]:
    """
    Colour and marker of a series; none of the first 42 has both in common with another.

    Args:
        number: of the series, from 0.

    Returns:
        "color" and "marker", as matplotlib's functions take them.

    Example:
        >>> series_style(6)
        {'color': '#0072B2', 'marker': 'X'}
    """
    return {
        "color": SERIES_COLORS[number % len(SERIES_COLORS)],
        "marker": SERIES_MARKERS[number % len(SERIES_MARKERS)],
    }


def frame(axis: Axes, title: str = "", x_label: str = "", y_label: str = "", grid: str | None = None) -> None:
    """
    Give an axis its texts, shown as they are (no TeX), without the box's upper and right side.

    Args:
        axis: to change.
        title: above it.
        x_label: below it.
        y_label: at its left.
        grid: "x", "y" or "both" for thin lines behind the data.

    Example:
        >>> axis = plot_figure(3, 2).subplots()
        >>> frame(axis, "a title", "pixels", grid="x")
        >>> axis.get_title(), axis.get_xlabel()
        ('a title', 'pixels')
    """
    axis.set_title(title, fontsize=TITLE_SIZE, parse_math=False)
    axis.set_xlabel(x_label, fontsize=LABEL_SIZE)
    axis.set_ylabel(y_label, fontsize=LABEL_SIZE)
    axis.tick_params(labelsize=TICK_SIZE)
    axis.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        axis.set_axisbelow(True)
        axis.grid(visible=True, axis=grid, color="0.88", linewidth=0.6)  # type: ignore[arg-type]


def legend_columns(names: Sequence[str], width: float) -> int:
    """
    How many entries of a legend fit side by side.

    Args:
        names: of the entries.
        width: of the figure in inches.

    Returns:
        A number from 1 to that of the names.

    Example:
        >>> legend_columns(["untrained", "ace"], 4.0), legend_columns(["a name that is far too long"] * 3, 2.0)
        (2, 1)
    """
    inches = 0.45 + 0.062 * max((len(name) for name in names), default=0)  # the mark, and letters of TICK_SIZE
    return max(1, min(len(names), int(width / inches)))


def legend_below(figure: Figure, handles: Sequence[Artist], names: Sequence[str]) -> None:
    """
    One legend for all axes, below them, where it hides nothing.

    Args:
        figure: with its axes.
        handles: of the legend's entries.
        names: of the entries, shown as they are (no TeX).

    Example:
        >>> figure = plot_figure(3, 2)
        >>> line = figure.subplots().plot([0, 1])
        >>> legend_below(figure, line, ["an encoder"])
        >>> figure.legends[0].get_texts()[0].get_text()
        'an encoder'
    """
    box = figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=legend_columns(names, figure.get_figwidth()),
        fontsize=TICK_SIZE,
        frameon=False,
    )
    for text in box.get_texts():
        text.set_parse_math(False)
