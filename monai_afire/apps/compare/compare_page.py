# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The comparison as a page, for any browser and without a network: dots with intervals, tables and maps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from monai_afire.apps.pages import render_page
from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.results.pictures.style import (
    SERIES_COLORS,
    figure_url,
    frame,
    legend_below,
    on_dark,
    plot_figure,
)
from monai_afire.apps.results.report_text import format_number
from monai_afire.utils.files import write_text

_GROUPS = 5  # that have a color of their own
_MIN_IMAGES = 3
_WIDTH, _ROW = 3.7, 0.21  # inches
_CHANCE = 0.5
_DOT, _BAND = SERIES_COLORS[4], SERIES_COLORS[5]
_LEGEND = ("encoder, 95 % interval", "best baseline, 95 % interval", "chance")


def write_page(
    path: str | os.PathLike, table: pd.DataFrame, maps: Sequence[Mapping[str, Any]], **facts: Any
) -> None:
    """Write the page of :func:`results_table`, :func:`embedding_maps` and further values of the template."""
    largest = table.groupby(["question", "setting"])["auc"].transform("max")
    rows = table.assign(best=table["auc"] == largest).to_dict("records")
    plots = {
        question: figure_url(on_dark(interval_plot(own)))
        for question, own in table.groupby("question")
    }
    values = {"results": rows, "plots": plots, "maps": maps, "number": format_number, **facts}
    write_text(path, render_page("monai_afire.apps.compare", "compare.html", **values))


def embedding_maps(
    name: str, features: NDArray, groups: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """
    Two principal components of features ``(M, D)``, once for each way to color the images, such as by "view".

    "name", "by", "groups" (name -> images; the rare ones share a color) and "picture" of each; none for fewer than
    three images, which span no plane.
    """
    if len(features) < _MIN_IMAGES:
        return []
    maps = []
    points = PCA(2, random_state=0).fit_transform(features)
    for by, own in groups.items():
        common = [group for group, _ in Counter(own).most_common(_GROUPS)]
        shown = [group if group in common else "other" for group in own]
        picture = figure_url(on_dark(map_figure({name: points}, {name: shown})))
        counts = dict(Counter(shown).most_common())
        maps.append({"name": name, "by": by, "groups": counts, "picture": picture})
    return maps


def interval_plot(table: pd.DataFrame) -> Figure:
    """A block for each setting: the band of the best baseline, and on it a dot with its interval for each encoder."""
    encoders = table[table["is_encoder"]]
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
