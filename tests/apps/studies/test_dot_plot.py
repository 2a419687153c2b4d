# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Marks of a dot plot are at their values, and its legend stays on the page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from monai_afire.apps.results.pictures.style import legend_columns
from monai_afire.apps.studies.dot_plot import dot_plot
from monai_afire.visualize.figures import figure_to_array


def test_marks_are_at_their_values() -> None:
    values = pd.DataFrame(
        {"a": [1.0, np.nan], "b $x_1$": [3.0, 2.0]}, index=["carina", "hilum_left"]
    )
    figure = dot_plot(values, "errors_of $x_1$", "pixels")
    lines = figure.axes[0].get_lines()
    np.testing.assert_array_equal(lines[0].get_xdata(), [1, np.nan])
    np.testing.assert_array_equal(lines[1].get_xdata(), [3, 2])
    assert list(lines[1].get_ydata()) == [0, 1]
    figure_to_array(figure)
    with pytest.raises(ValueError, match="nothing to draw"):
        dot_plot(values.iloc[:0], "", "")


@pytest.mark.parametrize("length", [3, 12, 40, 80])
def test_legend_stays_on_the_page(length: int) -> None:
    names = [f"{number:0{length}d}" for number in range(7)]
    figure = dot_plot(pd.DataFrame({name: [1.0, 2.0] for name in names}), "", "")
    figure_to_array(figure)
    box = figure.legends[0].get_window_extent()
    if length < 80:
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
    assert box.y0 >= 0
    assert 1 <= legend_columns(names, 6.4) <= 7
