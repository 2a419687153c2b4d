# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Confusion matrices."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from monai_afire.apps.results.pictures.style import (
    LABEL_SIZE,
    TICK_SIZE,
    VALUE_COLORS,
    frame,
    plot_figure,
)
from monai_afire.utils.text import counted
from monai_afire.visualize.figures import save_figure

_MARGIN, _CELL = 1.8, 0.62  # inches


def confusion_figure(
    matrix: ArrayLike, class_names: Sequence[str], path: str | os.PathLike | None
) -> Figure:
    """A confusion matrix: numbers of images, colored by their share of the true class."""
    counts = np.asarray(matrix)
    if counts.shape != (len(class_names), len(class_names)):
        raise ValueError(
            f"a confusion matrix of {len(class_names)} classes is square, got {counts.shape}"
        )
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = _MARGIN + _CELL * len(counts)
    figure = plot_figure(side + 0.6, side)
    axis = figure.subplots()
    image = axis.imshow(shares, cmap=VALUE_COLORS, vmin=0, vmax=1)
    for row, column in np.ndindex(counts.shape):
        # viridis is bright at its upper end
        color = "black" if shares[row, column] > 0.6 else "white"
        text = str(int(counts[row, column]))
        axis.text(column, row, text, ha="center", va="center", color=color, fontsize=LABEL_SIZE)
    frame(axis, counted(int(counts.sum()), "image"), "decision", "true class")
    names = [str(name) for name in class_names]
    axis.set_xticks(range(len(names)), names, rotation=45, ha="right", parse_math=False)
    axis.set_yticks(range(len(names)), names, parse_math=False)
    bar = figure.colorbar(image, ax=axis, fraction=0.046)
    bar.set_label("share of the true class", fontsize=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    save_figure(figure, path)
    return figure
