# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Features of images: dense ones, those of single tokens, raw pixels as a baseline, and their cosine similarity."""

from __future__ import annotations

from monai_afire.apps.studies.features.dense import (
    FeatureMaps,
    cell_centers,
    dense_features,
    finest_stride,
    shifts_per_axis,
)
from monai_afire.apps.studies.features.similarity import (
    SAME_COSINE,
    l2_normalize,
    nearest_center,
    spherical_kmeans,
)
from monai_afire.apps.studies.features.tokens import (
    check_sources,
    image_features,
    landmark_features,
    mean_token,
    position_features,
    spread_positions,
    token_features,
)
from monai_afire.networks.nets.raw_pixels import RAW_PIXELS, RawPixels, with_raw_pixels

__all__ = [
    "RAW_PIXELS",
    "SAME_COSINE",
    "FeatureMaps",
    "RawPixels",
    "cell_centers",
    "check_sources",
    "dense_features",
    "finest_stride",
    "image_features",
    "l2_normalize",
    "landmark_features",
    "mean_token",
    "nearest_center",
    "position_features",
    "shifts_per_axis",
    "spherical_kmeans",
    "spread_positions",
    "token_features",
    "with_raw_pixels",
]
