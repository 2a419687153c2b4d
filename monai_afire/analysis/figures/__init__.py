# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Figures of the studies: tables in, pictures out; none touches the global state of pyplot."""

from __future__ import annotations

from monai_afire.analysis.figures.composition import composition_figure, matching_figure
from monai_afire.analysis.figures.correspondence import correspondence_figure, found_landmarks_figure
from monai_afire.analysis.figures.cosegmentation import cosegmentation_figure, organ_outlines_figure, segments_figure
from monai_afire.analysis.figures.grouping import map_figure
from monai_afire.analysis.figures.prototypes import atlas_figure, cluster_figure
from monai_afire.analysis.figures.restoration import restoration_figure
from monai_afire.analysis.figures.saliency import saliency_figure
from monai_afire.analysis.figures.symmetry import partner_figure, symmetry_matrix_figure

__all__ = [
    "atlas_figure",
    "cluster_figure",
    "composition_figure",
    "correspondence_figure",
    "cosegmentation_figure",
    "found_landmarks_figure",
    "map_figure",
    "matching_figure",
    "organ_outlines_figure",
    "partner_figure",
    "restoration_figure",
    "saliency_figure",
    "segments_figure",
    "symmetry_matrix_figure",
]
