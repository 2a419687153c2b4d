# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of the symmetry of landmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from monai_afire.visualize.dot_plot import dot_plot
from monai_afire.visualize.style import HEAT_COLORS, SERIES_COLORS, TICK_SIZE, frame, plot_figure

__all__ = ["partner_figure", "symmetry_matrix_figure"]

_PANELS_PER_ROW = 3


def partner_figure(
    tables: Mapping[str, pd.DataFrame], names: Sequence[str], pairs: Sequence[tuple[int, int]], title: str
) -> Figure:
    """
    How often the most similar other landmark is the partner, for each landmark and encoder.

    Args:
        tables: of :func:`monai_afire.analysis.landmark_symmetry`, by the encoders' names.
        names: of the landmarks.
        pairs: indices of the partners.
        title: of the figure.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder or a pair.

    Example:
        >>> table = pd.DataFrame({"landmark": [0, 1], "correct": [1.0, 0.0]})
        >>> len(partner_figure({"mine": table}, ["hilum_right", "hilum_left"], [(0, 1)], "Partners").axes)
        1
    """
    values = pd.DataFrame({name: table.groupby("landmark")["correct"].mean() for name, table in tables.items()})
    paired = [index for pair in pairs for index in pair]
    values = values.reindex(paired).set_axis([names[index] for index in paired])
    return dot_plot(values, title, "share of images", limits=(-0.03, 1.03))


def symmetry_matrix_figure(
    matrices: Mapping[str, NDArray], names: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> Figure:
    """
    The mean similarity of each landmark with each one in the mirror; the partners are framed.

    Each panel has its own colours, from its lowest to its highest value beside the diagonal: features of radiographs
    may all be alike. Landmarks without a partner come last.

    Args:
        matrices: for each encoder ``(P, P)``, of :func:`monai_afire.analysis.similarity_matrix`.
        names: of the landmarks.
        pairs: indices of the partners.

    Returns:
        The figure.

    Raises:
        ValueError: without an encoder.

    Example:
        >>> len(symmetry_matrix_figure({"mine": np.eye(3)}, ["hilum_right", "carina", "hilum_left"], [(0, 2)]).axes)
        2
    """
    if not matrices:
        raise ValueError("no matrix to draw: give that of at least one encoder")
    paired = [index for pair in pairs for index in pair]
    order = paired + [index for index in range(len(names)) if index not in paired]
    labels = [names[index] for index in order]
    rows = -(-len(matrices) // _PANELS_PER_ROW)
    columns = -(-len(matrices) // rows)
    side = 0.9 + 0.15 * len(order)
    figure = plot_figure(columns * (side + 0.6) + 1.4, rows * (side + 0.5) + 1.3)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for number, (axis, (name, matrix)) in enumerate(zip(axes.ravel(), matrices.items(), strict=False)):
        shown = np.where(np.eye(len(order), dtype=bool), np.nan, matrix[np.ix_(order, order)])
        picture = axis.imshow(shown, cmap=HEAT_COLORS)
        for first in range(0, len(paired), 2):
            for corner in ((first, first + 1), (first + 1, first)):
                x, y = (cell - 0.5 for cell in corner)
                axis.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=SERIES_COLORS[1], linewidth=1.3))
        frame(axis, name)
        axis.set_xticks(range(len(order)), labels, rotation=90, parse_math=False)
        axis.set_yticks(range(len(order)), labels, parse_math=False)
        axis.tick_params(labelbottom=number + columns >= len(matrices))  # the lowest of its column
        bar = figure.colorbar(picture, ax=axis, shrink=0.8)
        bar.ax.tick_params(labelsize=TICK_SIZE)
    for axis in axes.ravel()[len(matrices) :]:
        axis.remove()
    figure.supxlabel("in the mirror", fontsize=8)
    return figure
