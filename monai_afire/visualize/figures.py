# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Grids of gray pictures, and figures as files and arrays; none touches the global state of pyplot."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from monai_afire.utils.files import atomic_path


def picture_grid(rows: Sequence[Sequence[NDArray]], columns: Sequence[str], title: str) -> Figure:
    """
    A grid of pictures with a title over each column.

    Args:
        rows: for each row one picture per column, gray ``(H, W)`` or in color ``(H, W, 3)``, in [0, 1]; 0 is black and
            1 white for all pictures alike.
        columns: titles of the columns.
        title: title of the whole.

    Returns:
        The figure, for :func:`save_figure` or :func:`figure_to_array`.
    """
    size = (2.2 * len(columns), 2.2 * len(rows) + 0.5)
    figure = Figure(figsize=size, dpi=110, layout="compressed")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for row_axes, row in zip(axes, rows, strict=True):
        for axis, picture in zip(row_axes, row, strict=True):
            axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
            axis.set_axis_off()
    for axis, name in zip(axes[0], columns, strict=True):
        axis.set_title(name, fontsize=9, parse_math=False)
    figure.suptitle(title, fontsize=10, parse_math=False)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike | None) -> None:
    """Write a figure at once or not at all; the file's extension says the format, PNG without one."""
    if path is None:
        return
    extension = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=extension)


def figure_to_array(figure: Figure) -> NDArray[np.uint8]:
    """The pixels of a figure, ``(H, W, 3)`` in red, green and blue."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def first_channel(image: torch.Tensor) -> NDArray:
    """The first channel ``(H, W)`` of an image ``(C, H, W)`` on any device, to be shown."""
    return image[0].detach().float().cpu().numpy()
