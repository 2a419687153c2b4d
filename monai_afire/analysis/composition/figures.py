# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of the composition of embeddings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from monai_afire.analysis.composition.measures import similarity_density
from monai_afire.visualize.style import (
    CHANCE_COLOR,
    LABEL_SIZE,
    SERIES_COLORS,
    TICK_SIZE,
    TITLE_SIZE,
    frame,
    legend_below,
    plot_figure,
)

__all__ = ["composition_figure", "matching_figure"]

_OWN_COLOR, _OTHER_COLOR = SERIES_COLORS[0], SERIES_COLORS[5]
_POINTS = 512


def composition_figure(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """
    Densities of the similarity of a patch with its parts, and with those of another image (ACE, Fig. 3).

    A row per encoder, a column per number of parts; all panels of a column share the range of similarity. Each panel
    has its own height, since an encoder whose embeddings are all alike gives needles.

    Args:
        tables: of :func:`monai_afire.analysis.compositionality`, by the encoders' names.

    Returns:
        The figure.

    Raises:
        ValueError: without a table.

    Example:
        >>> similarity = np.linspace(0.7, 0.9, 9)
        >>> table = pd.DataFrame({"parts": 2, "similarity": similarity, "other_similarity": similarity - 0.3})
        >>> len(composition_figure({"untrained": table, "trained": table}).axes)
        2
    """
    if not tables:
        raise ValueError("no table to draw: give the table of at least one encoder")
    parts = sorted(set().union(*(table["parts"] for table in tables.values())))
    figure = plot_figure(0.9 + 3.3 * len(parts), 1.0 + 1.25 * len(tables))
    axes = figure.subplots(len(tables), len(parts), squeeze=False, sharex="col")
    for row, (name, table) in zip(axes, tables.items(), strict=True):
        for axis, number in zip(row, parts, strict=True):
            _draw_densities(axis, table[table["parts"] == number], _lowest(tables, number))
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=LABEL_SIZE, parse_math=False)
    for axis, number in zip(axes[0], parts, strict=True):
        axis.set_title(f"{number} parts", fontsize=TITLE_SIZE)
    for axis in axes[-1]:
        axis.set_xlabel("cosine similarity", fontsize=LABEL_SIZE)
    handles = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
    legend_below(figure, list(handles.values()), list(handles))
    return figure


def matching_figure(table: pd.DataFrame) -> Figure:
    """
    Accuracies of decomposition and retrieval beside chance (ACE, Fig. 4 and 5).

    Args:
        table: a row per encoder with "decomposition_accuracy", "retrieval_accuracy" and "chance".

    Returns:
        The figure.

    Example:
        >>> columns = {"decomposition_accuracy": [0.9], "retrieval_accuracy": [0.8], "chance": [1 / 32]}
        >>> len(matching_figure(pd.DataFrame(columns, index=["ace"])).axes)
        2
    """
    figure = plot_figure(7.5, 1.1 + 0.4 * len(table))
    titles = {"decomposition_accuracy": "decomposition", "retrieval_accuracy": "patch → image retrieval"}
    for axis, (column, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        values = table[column].to_numpy(dtype=float)
        axis.barh(range(len(table)), np.nan_to_num(values), color=_OWN_COLOR, height=0.6)
        for row, (value, chance) in enumerate(zip(values, table["chance"], strict=True)):
            text = f"{value:.1%}" if value == value else "not defined"
            beside = max(np.nan_to_num(value), chance) + 0.02  # the line of chance would cross the text
            axis.text(beside, row, text, va="center", fontsize=TICK_SIZE)
        chance_line = axis.axvline(float(table["chance"].mean()), color=CHANCE_COLOR, linestyle="--", linewidth=1)
        axis.set_xlim(0, 1.17)  # room for the label of 100 %
        axis.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axis.xaxis.set_major_formatter(PercentFormatter(1.0))
        frame(axis, title)
    left = figure.axes[0]
    left.set_yticks(range(len(table)), [str(name) for name in table.index], parse_math=False)
    left.invert_yaxis()
    legend_below(figure, [chance_line], ["chance"])
    return figure


def _lowest(tables: Mapping[str, pd.DataFrame], parts: int) -> float:
    """Where the axis begins: a little below the lowest similarity but for a hundredth of them."""
    columns = ["similarity", "other_similarity"]
    values = np.concatenate(
        [table.loc[table["parts"] == parts, columns].to_numpy().ravel() for table in tables.values()]
    )
    values = values[~np.isnan(values)]
    low = float(np.quantile(values, 0.01)) if len(values) else 0.0
    return max(-1.0, low - 0.1 * max(1 - low, 1e-3))


def _draw_densities(axis: Axes, rows: pd.DataFrame, low: float) -> None:
    """The two densities; a line where all similarities are the same."""
    # finer near 1, where the needles stand
    points = 1 - (1 - low) * np.linspace(1, 0, _POINTS) ** 2
    styles = (
        ("other_similarity", "parts of another image", _OTHER_COLOR, "--"),
        ("similarity", "own parts", _OWN_COLOR, "-"),
    )
    for column, label, color, line in styles:
        values = rows[column].dropna()
        density = similarity_density(values, points)
        if density is not None:
            axis.plot(points, density / density.max(), color=color, linestyle=line, label=label)
            axis.fill_between(points, density / density.max(), color=color, alpha=0.25, linewidth=0)
        elif len(values):
            axis.axvline(values.mean(), color=color, linestyle=line, label=label)
    axis.set_xlim(low, 1 + 0.02 * (1 - low))
    axis.set_ylim(0, 1.1)
    axis.set_yticks([])
    axis.xaxis.set_major_locator(MaxNLocator(5))
    frame(axis)
    axis.spines["left"].set_visible(False)
