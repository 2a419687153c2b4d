# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Co-segmentation: organs found by clustering the tokens of several images."""

from __future__ import annotations

from monai_afire.analysis.cosegmentation.figures import cosegmentation_figure, organ_outlines_figure, segments_figure
from monai_afire.analysis.cosegmentation.measures import (
    best_dice,
    cosegment,
    organ_clusters,
    position_labels,
    score_segments,
    segments_to_masks,
)
from monai_afire.analysis.cosegmentation.study import CosegmentationStudy

__all__ = [
    "CosegmentationStudy",
    "best_dice",
    "cosegment",
    "cosegmentation_figure",
    "organ_clusters",
    "organ_outlines_figure",
    "position_labels",
    "score_segments",
    "segments_figure",
    "segments_to_masks",
]
