# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures: grids, heat maps over radiographs, contact sheets, ROC and precision-recall curves."""

from __future__ import annotations

from monai_afire.visualize.contact_sheet import contact_sheet, heat_range
from monai_afire.visualize.curves import class_roc_figure, roc_pr_figure
from monai_afire.visualize.dot_plot import dot_plot
from monai_afire.visualize.figures import (
    figure_to_array,
    figure_url,
    first_channel,
    picture_grid,
    save_figure,
)
from monai_afire.visualize.heat_map import HEAT_COLORS, heat_panels, overlay_heat_map
from monai_afire.visualize.interval_plot import interval_plot
from monai_afire.visualize.token_colors import token_colors

__all__ = [
    "HEAT_COLORS",
    "class_roc_figure",
    "contact_sheet",
    "dot_plot",
    "figure_to_array",
    "figure_url",
    "heat_panels",
    "heat_range",
    "first_channel",
    "interval_plot",
    "overlay_heat_map",
    "picture_grid",
    "roc_pr_figure",
    "save_figure",
    "token_colors",
]
