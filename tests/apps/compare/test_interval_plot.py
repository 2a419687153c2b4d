# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dots, intervals and bands are where the numbers say; figures on a dark page can be read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from monai_afire.apps.compare.interval_plot import interval_plot
from monai_afire.apps.results.pictures.style import on_dark
from monai_afire.visualize.figures import figure_to_array

COLUMNS = ["setting", "name", "is_encoder", "auc", "low", "high"]
ROWS = [
    ("few", "pixels", False, 0.60, 0.55, 0.65),
    ("few", "view", False, 0.70, 0.62, 0.78),
    ("few", "mine", True, 0.80, 0.72, 0.88),
    ("all", "pixels", False, 0.75, 0.70, 0.80),
    ("all", "mine", True, 0.65, 0.52, 0.74),
    ("all", "<b>$x$", True, 0.90, 0.85, 0.95),
]


def test_everything_is_where_the_numbers_say() -> None:
    axis = interval_plot(pd.DataFrame(ROWS, columns=COLUMNS)).axes[0]
    names = [text.get_text() for text in axis.get_yticklabels()]
    assert names == ["few", "mine", "all", "mine", "<b>$x$"]
    dots = [line.get_xydata().tolist() for line in axis.lines if line.get_marker() == "o"]
    assert [dot for dot in dots if dot] == [[[0.80, 1]], [[0.65, 3], [0.90, 4]]]
    bands = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
    spans = [(band.get_x(), band.get_x() + band.get_width()) for band in bands]
    np.testing.assert_allclose(spans, [(0.62, 0.78), (0.70, 0.80)])  # of the best baselines
    low, high = axis.get_xlim()
    assert low < 0.5
    assert high > 0.95


def test_a_table_without_an_encoder_is_refused() -> None:
    with pytest.raises(ValueError, match="no encoder"):
        interval_plot(pd.DataFrame(ROWS[:2], columns=COLUMNS))


def luminance(color: object) -> float:
    """By WCAG 2."""
    channels = np.array(to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_letters_and_dots_are_read_on_a_dark_page() -> None:
    figure = on_dark(interval_plot(pd.DataFrame(ROWS, columns=COLUMNS)))
    axis = figure.axes[0]
    texts = [*axis.get_xticklabels(), *axis.get_yticklabels(), axis.xaxis.label]
    texts += figure.legends[0].get_texts()
    colors = [text.get_color() for text in texts]
    colors += [line.get_color() for line in axis.lines if line.get_marker() == "o"]
    paper = luminance(figure.get_facecolor())
    assert min((luminance(color) + 0.05) / (paper + 0.05) for color in colors) > 4.5
    assert figure_to_array(figure)[0, 0].max() < 40
