# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures: grids, heat maps over radiographs, colors of tokens."""

from __future__ import annotations

from monai_afire.visualize.figures import (
    figure_to_array,
    figure_url,
    first_channel,
    picture_grid,
    save_figure,
)
from monai_afire.visualize.heat_map import HEAT_COLORS, heat_panels, overlay_heat_map
from monai_afire.visualize.token_colors import token_colors

__all__ = [
    "HEAT_COLORS",
    "figure_to_array",
    "figure_url",
    "heat_panels",
    "first_channel",
    "overlay_heat_map",
    "picture_grid",
    "save_figure",
    "token_colors",
]
