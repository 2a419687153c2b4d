# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures of the page: dots, intervals and bands are where the numbers say."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from monai_afire.apps.compare.compare_page import interval_plot

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
