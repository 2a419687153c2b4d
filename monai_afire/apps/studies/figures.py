# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures that studies share: dot plots of values, and gray pictures to draw on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from monai_afire.apps.results.pictures import style
from monai_afire.apps.results.pictures.draw import outlined

SHARE_LIMITS = (-0.03, 1.03)  # of an axis of shares, whose marks at 0 and 1 stay whole
_WIDTH = 6.4
_FRAMED = 400  # pixels of the longer side of a picture with an outline, at least


def dot_plot(
    values: pd.DataFrame, title: str, label: str, limits: tuple[float, float | None] = (0.0, None)
) -> Figure:
    """
    A line for each item (the rows), with a mark for each series (the columns); NaN is not drawn.

    ``label`` says what the values are; limits of None are those that the values need.
    """
    series = [str(name) for name in values.columns]
    legend_rows = -(-len(series) // style.legend_columns(series, _WIDTH))
    figure = style.plot_figure(_WIDTH, 1.0 + 0.22 * len(values) + 0.17 * legend_rows)
    axis = figure.subplots()
    rows = range(len(values))
    marks: dict[str, Any] = {"linestyle": "", "markersize": 5.5, "alpha": 0.85}
    handles = [
        axis.plot(values[name].to_numpy(dtype=float), rows, **marks, **style.series_style(number))
        for number, name in enumerate(values.columns)
    ]
    style.frame(axis, title, label, grid="both")
    axis.set_yticks(rows, [str(name) for name in values.index], parse_math=False)
    axis.set_ylim(len(values) - 0.5, -0.5)  # the first item on top
    axis.set_xlim(*limits)
    style.legend_below(figure, [line for (line,) in handles], series)
    return figure


def in_colors(gray: NDArray) -> NDArray[np.uint8]:
    """A gray picture ``(H, W)`` in [0, 1] as ``(H, W, 3)`` of 8 bits."""
    return np.rint(255 * np.stack([gray] * 3, axis=-1)).astype(np.uint8)


def framed(picture: NDArray[np.uint8], mask: ArrayLike) -> NDArray[np.uint8]:
    """A picture ``(H, W, 3)``, enlarged by a whole number, with a fine outline of a mask ``(H, W)``."""
    small = Image.fromarray(picture)
    factor = -(-_FRAMED // max(small.size))
    size = (factor * small.width, factor * small.height)
    return outlined(small.resize(size, Image.Resampling.NEAREST), mask)
