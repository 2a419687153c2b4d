# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Prototypes: what AFiRe's clusters and position-bound prototypes stand for."""

from __future__ import annotations

from monai_afire.analysis.prototypes.figures import atlas_figure, cluster_figure
from monai_afire.analysis.prototypes.measures import (
    atlas_scores,
    cluster_patches,
    largest_clusters,
    organ_information,
    organ_shares,
    patch_windows,
    prototype_atlas,
)
from monai_afire.analysis.prototypes.study import PrototypeStudy

__all__ = [
    "PrototypeStudy",
    "atlas_figure",
    "atlas_scores",
    "cluster_figure",
    "cluster_patches",
    "largest_clusters",
    "organ_information",
    "organ_shares",
    "patch_windows",
    "prototype_atlas",
]
