# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Grouping: low-dimensional maps of features, and how they group by position, landmark or finding."""

from __future__ import annotations

from monai_afire.analysis.grouping.figures import map_figure
from monai_afire.analysis.grouping.measures import (
    chance_purity,
    group_separation,
    neighbor_purity,
    tsne_map,
)
from monai_afire.analysis.grouping.study import ImageMapStudy, LandmarkMapStudy, PositionMapStudy

__all__ = [
    "ImageMapStudy",
    "LandmarkMapStudy",
    "PositionMapStudy",
    "chance_purity",
    "group_separation",
    "map_figure",
    "neighbor_purity",
    "tsne_map",
]
