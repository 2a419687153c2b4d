# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Maps of points in the plane, such as t-SNE's, with a color and a marker for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import NDArray

from monai_afire.apps.results.pictures.style import (
    frame,
    legend_below,
    legend_columns,
    plot_figure,
    series_style,
)

_PANEL_INCHES, _PANELS_PER_ROW, _LEAST_WIDTH = 2.4, 4, 4.8


def map_figure(
    maps: Mapping[str, NDArray],
    groups: Mapping[str, Sequence[str]],
    captions: Mapping[str, str] | None = None,
    paired: bool = False,
) -> Figure:
    """
    A panel for each encoder with its points ``(N, 2)``, a color and a marker for each group.

    ``groups`` has the group of each point, ``captions`` a line below an encoder's name. If ``paired``, each two groups,
    in order of appearance, share color and marker, and the second one is hollow.
    """
    order = list(dict.fromkeys(group for name in maps for group in groups[name]))
    styles = [_point_style(number, paired) for number in range(len(order))]
    rows = -(-len(maps) // _PANELS_PER_ROW)
    columns = -(-len(maps) // rows)
    width = max(_PANEL_INCHES * columns, _LEAST_WIDTH)
    legend_rows = -(-len(order) // legend_columns(order, width))
    figure = plot_figure(width, (_PANEL_INCHES + 0.5) * rows + 0.17 * legend_rows + 0.2)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (name, points) in zip(axes, maps.items(), strict=False):
        for group, style in zip(order, styles, strict=True):
            own = [member == group for member in groups[name]]
            axis.scatter(*points[own].T, s=11, alpha=0.75, **style)
        frame(axis, "\n".join(filter(None, [name, (captions or {}).get(name, "")])))
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_box_aspect(1)
        axis.spines[:].set_visible(True)
        axis.spines[:].set_color("0.8")
    for axis in axes[len(maps) :]:
        axis.remove()
    handles = [figure.axes[0].scatter([], [], s=20, **style) for style in styles]
    legend_below(figure, handles, order)
    return figure


def _point_style(number: int, paired: bool) -> dict[str, Any]:
    style = series_style(number // 2 if paired else number)
    hollow = paired and number % 2
    color = style.pop("color")
    return style | {
        "facecolors": "none" if hollow else color,
        "edgecolors": color,
        "linewidths": 0.8 if hollow else 0,
    }
