# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Series are told apart, and no picture of a report touches the global state of pyplot."""

from __future__ import annotations

from itertools import pairwise

import matplotlib
import numpy as np
from matplotlib import pyplot

from monai_afire.apps.results.pictures import contact_sheet, roc_pr_figure
from monai_afire.apps.results.pictures.style import series_style
from monai_afire.visualize.figures import figure_to_array


def test_series_are_told_apart() -> None:
    styles = [tuple(series_style(number).values()) for number in range(42)]
    assert len(set(styles)) == 42
    # neighbors differ in both, for readers and printers without colors
    for first, second in pairwise(styles):
        assert first[0] != second[0]
        assert first[1] != second[1]


def test_pyplot_knows_nothing_of_the_figures() -> None:
    before = pyplot.get_fignums(), matplotlib.get_backend(), dict(matplotlib.rcParams)
    picture = [np.full((8, 8), 0.25)]
    figure_to_array(contact_sheet(picture, picture, ["a"]))
    figure_to_array(roc_pr_figure([0, 1], {"a": [0, 1]}))
    assert (pyplot.get_fignums(), matplotlib.get_backend(), dict(matplotlib.rcParams)) == before
