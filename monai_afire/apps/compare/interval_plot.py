# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dots with intervals, each beside the band of the baseline that it is compared with."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from monai_afire.apps.results.pictures.style import SERIES_COLORS, frame, legend_below, plot_figure

_WIDTH, _ROW = 3.7, 0.21  # inches
_CHANCE = 0.5
_DOT, _BAND = SERIES_COLORS[4], SERIES_COLORS[5]
_LEGEND = ("encoder, 95 % interval", "best baseline, 95 % interval", "chance")


def interval_plot(table: pd.DataFrame) -> Figure:
    """
    A block for each setting: the band of the best baseline, and on it a dot with its interval for each encoder.

    Args:
        table: rows with "setting", "name", "is_encoder", "auc", "low" and "high".

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder.

    Example:
        >>> rows = {"setting": "all labels", "name": ["mine", "pixels"], "is_encoder": [True, False]}
        >>> figure = interval_plot(pd.DataFrame(rows).assign(auc=[0.8, 0.6], low=[0.7, 0.5], high=[0.9, 0.7]))
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['all labels', 'mine']
    """
    encoders = table[table["is_encoder"]]
    if encoders.empty:
        raise ValueError("nothing to draw: the table has no encoder")
    settings = list(dict.fromkeys(table["setting"]))
    num_rows = len(settings) + len(encoders)
    figure = plot_figure(_WIDTH, 1.2 + _ROW * num_rows)
    axis = figure.subplots()
    names: list[str] = []
    headings: list[int] = []
    for setting in settings:
        headings.append(len(names))
        own = table[table["setting"] == setting]
        _draw_block(axis, own, len(names))
        names += [setting, *own.loc[own["is_encoder"], "name"]]
    frame(axis, "", "AUC", grid="x")
    axis.set_yticks(range(len(names)), names, parse_math=False)
    for row in headings:
        axis.get_yticklabels()[row].set_fontweight("bold")
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(len(names) - 0.5, -0.5)  # the first block on top
    chance = axis.axvline(_CHANCE, color="0.5", linestyle=":", linewidth=1)
    axis.set_xlim(*_limits(table))
    dot = axis.plot([], [], color=_DOT, marker="o", markersize=5)[0]
    band = Rectangle((0, 0), 1, 1, color=_BAND, alpha=0.45, linewidth=0)
    legend_below(figure, [dot, band, chance], _LEGEND)
    return figure


def _draw_block(axis: Axes, own: pd.DataFrame, top: int) -> None:
    """The baseline's band over all rows of a setting, and the encoders' dots below its heading."""
    encoders, baselines = own[own["is_encoder"]], own[~own["is_encoder"]]
    if len(baselines):
        best = baselines.loc[baselines["auc"].idxmax()]
        low, high, bottom = best["low"], best["high"], top + len(encoders) + 0.4
        band = Rectangle((low, top + 0.6), high - low, bottom - top - 0.6, zorder=0.5)
        band.set(color=_BAND, alpha=0.45, linewidth=0)
        axis.add_patch(band)
        axis.vlines(best["auc"], top + 0.6, bottom, color=_BAND, linewidth=1.5, zorder=1)
    rows = np.arange(len(encoders)) + top + 1
    axis.hlines(rows, encoders["low"], encoders["high"], color=_DOT, linewidth=1.6, zorder=2)
    axis.plot(encoders["auc"], rows, color=_DOT, marker="o", markersize=5, linestyle="", zorder=3)


def _limits(table: pd.DataFrame) -> tuple[float, float]:
    """Of the axis of values: all intervals and chance, with a margin."""
    low, high = min(table["low"].min(), _CHANCE), max(table["high"].max(), _CHANCE)
    margin = 0.03 * (high - low) + 0.005
    return max(low - margin, -0.01), min(high + margin, 1.01)
