# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures of reports: curves, confusion matrices, outlines, contact sheets, maps of points, and their style."""

from __future__ import annotations

from monai_afire.apps.results.pictures.confusion import confusion_figure
from monai_afire.apps.results.pictures.contact_sheet import contact_sheet, heat_range
from monai_afire.apps.results.pictures.curves import class_roc_figure, roc_pr_figure
from monai_afire.apps.results.pictures.group_map import map_figure
from monai_afire.apps.results.pictures.outlines import (
    class_color,
    landmark_picture,
    outline_picture,
    picture_sheet,
)

__all__ = [
    "class_color",
    "class_roc_figure",
    "confusion_figure",
    "contact_sheet",
    "heat_range",
    "landmark_picture",
    "map_figure",
    "outline_picture",
    "picture_sheet",
    "roc_pr_figure",
]
