# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Common style of all plots: sizes, letters, and colors that color-blind readers distinguish."""

from __future__ import annotations

import io
import textwrap
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette without black and yellow, which does not show on white
SERIES_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
SERIES_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
VALUE_COLORS = "viridis"
_DARK_PAPER, _LIGHT_INK = "#1c1c1c", "#dddddd"

TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 9, 8, 7


def plot_figure(width: float, height: float, pictures: bool = False) -> Figure:
    """An empty figure whose parts are laid out without overlaps."""
    figure = Figure(figsize=(width, height), dpi=130)
    figure.set_layout_engine("compressed" if pictures else "constrained", h_pad=0.08, w_pad=0.06)
    return figure


def series_style(number: int) -> dict[str, Any]:
    """Color and marker of a series; none of the first 42 has both in common with another."""
    return {
        "color": SERIES_COLORS[number % len(SERIES_COLORS)],
        "marker": SERIES_MARKERS[number % len(SERIES_MARKERS)],
    }


def frame(
    axis: Axes, title: str = "", x_label: str = "", y_label: str = "", grid: str | None = None
) -> None:
    """Give an axis its texts, shown without TeX, without the box's upper and right side."""
    axis.set_title(title, fontsize=TITLE_SIZE, parse_math=False)
    axis.set_xlabel(x_label, fontsize=LABEL_SIZE)
    axis.set_ylabel(y_label, fontsize=LABEL_SIZE)
    axis.tick_params(labelsize=TICK_SIZE)
    axis.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        axis.set_axisbelow(True)
        axis.grid(visible=True, axis=grid, color="0.88", linewidth=0.6)  # type: ignore[arg-type]


def wrapped_title(title: str, columns: int, most_lines: int | None = None) -> str:
    """A title in lines of so many characters; with too many lines the last one ends in an ellipsis."""
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, columns) or [""]]
    if most_lines is not None and len(lines) > most_lines:
        lines = [*lines[: most_lines - 1], lines[most_lines - 1][: columns - 1] + "…"]
    return "\n".join(lines)


def legend_columns(names: Sequence[str], width: float) -> int:
    """How many entries of a legend fit side by side."""
    # the mark, and letters of TICK_SIZE
    inches = 0.45 + 0.062 * max((len(name) for name in names), default=0)
    return max(1, min(len(names), int(width / inches)))


def legend_below(
    figure: Figure, handles: Sequence[Artist], names: Sequence[str], **look: Any
) -> None:
    """One legend for all axes, below them, where it hides nothing; with a frame if it has a look."""
    box = figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=legend_columns(names, figure.get_figwidth()),
        fontsize=TICK_SIZE,
        frameon=bool(look),
        **look,
    )
    for text in box.get_texts():
        text.set_parse_math(False)


def on_dark(figure: Figure) -> Figure:
    """Show a figure, which is changed, on a dark page: its paper, letters and lines change, its data do not."""
    figure.set_facecolor(_DARK_PAPER)
    for axis in figure.axes:
        axis.set_facecolor(_DARK_PAPER)
        axis.tick_params(colors=_LIGHT_INK)
        axis.spines[:].set_color(_LIGHT_INK)
        for line in (*axis.get_xgridlines(), *axis.get_ygridlines()):
            line.set_color("0.3")
        for text in (axis.title, axis.xaxis.label, axis.yaxis.label):
            text.set_color(_LIGHT_INK)
    for legend in figure.legends:
        for text in legend.get_texts():
            text.set_color(_LIGHT_INK)
    return figure


def figure_url(figure: Figure) -> str:
    """The figure as PNG in a URL with its data, for the ``src`` of an ``img``."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode('ascii')}"
