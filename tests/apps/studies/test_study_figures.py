# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Marks of a dot plot are at their values."""

from __future__ import annotations

import numpy as np
import pandas as pd

from monai_afire.apps.studies.figures import dot_plot
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
