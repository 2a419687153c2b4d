# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Maps of features in the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from numpy.typing import NDArray

from monai_afire.visualize.style import frame, legend_below, plot_figure, series_style

__all__ = ["map_figure"]

_PANEL_INCHES, _PANELS_PER_ROW, _LEGEND_COLUMNS = 2.6, 4, 5


def map_figure(
    maps: Mapping[str, NDArray], groups: Mapping[str, Sequence[str]], captions: Mapping[str, str] | None = None
) -> Figure:
    """
    A panel for each encoder, a colour and a marker for each group.

    Args:
        maps: for each encoder ``(N, 2)``, e.g. of :func:`monai_afire.analysis.tsne_map`.
        groups: for each encoder the group of each point.
        captions: for each encoder a line below its name.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder, or when an encoder has not as many groups as points.

    Example:
        >>> import numpy as np
        >>> figure = map_figure({"untrained": np.random.rand(4, 2)}, {"untrained": ["a", "a", "b", "b"]})
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['a', 'b']
    """
    if not maps or any(len(points) != len(groups[name]) for name, points in maps.items()):
        raise ValueError(
            f"points of { ({name: len(points) for name, points in maps.items()}) } need as many groups, got "
            f"{ ({name: len(own) for name, own in groups.items()}) }"
        )
    order = list(dict.fromkeys(group for name in maps for group in groups[name]))
    columns = min(_PANELS_PER_ROW, len(maps))
    rows = -(-len(maps) // columns)
    legend_rows = -(-len(order) // _LEGEND_COLUMNS)
    width = max(_PANEL_INCHES * columns, 1.3 * min(len(order), _LEGEND_COLUMNS))
    figure = plot_figure(width, (_PANEL_INCHES + 0.3) * rows + 0.17 * legend_rows + 0.1)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (name, points) in zip(axes, maps.items(), strict=False):
        for number, group in enumerate(order):
            own = [member == group for member in groups[name]]
            axis.scatter(*points[own].T, s=9, linewidths=0, alpha=0.75, **series_style(number))
        frame(axis, "\n".join(filter(None, [name, (captions or {}).get(name, "")])))
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_box_aspect(1)
        axis.spines[:].set_visible(True)
        axis.spines[:].set_color("0.8")
    for axis in axes[len(maps) :]:
        axis.remove()
    handles = [
        figure.axes[0].plot([], [], linestyle="", markersize=4, **series_style(number))[0]
        for number in range(len(order))
    ]
    legend_below(figure, handles, order, _LEGEND_COLUMNS)
    return figure
