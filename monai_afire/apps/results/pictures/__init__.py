# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures of reports: grids, what is drawn onto radiographs, heat maps, plots, maps of points, and their style."""

from __future__ import annotations

from monai_afire.apps.results.pictures.draw import class_color, landmark_picture, outline_picture
from monai_afire.apps.results.pictures.grid import contact_sheet, image_grid
from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.results.pictures.plots import (
    class_roc_figure,
    confusion_figure,
    roc_pr_figure,
)

__all__ = [
    "class_color",
    "class_roc_figure",
    "confusion_figure",
    "contact_sheet",
    "image_grid",
    "landmark_picture",
    "map_figure",
    "outline_picture",
    "roc_pr_figure",
]
