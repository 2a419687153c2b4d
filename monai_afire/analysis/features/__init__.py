# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""From images to features: of all places or chosen ones, of raw pixels for comparison; directions and clusters."""

from __future__ import annotations

from monai_afire.analysis.features.clustering import nearest_center, spherical_kmeans
from monai_afire.analysis.features.dense import cell_centers, dense_features, finest_stride, shifts_per_axis
from monai_afire.analysis.features.feature_maps import FeatureMaps
from monai_afire.analysis.features.l2_normalization import SAME_COSINE, directions
from monai_afire.analysis.features.raw_pixels import RAW_PIXELS, RawPixels, with_raw_pixels
from monai_afire.analysis.features.token_features import (
    WINDOW,
    image_features,
    landmark_features,
    position_features,
    spread_positions,
)
from monai_afire.analysis.features.tokens import mean_tokens, reduced_tokens

__all__ = [
    "FeatureMaps",
    "RAW_PIXELS",
    "RawPixels",
    "SAME_COSINE",
    "WINDOW",
    "cell_centers",
    "dense_features",
    "directions",
    "finest_stride",
    "image_features",
    "landmark_features",
    "mean_tokens",
    "nearest_center",
    "position_features",
    "reduced_tokens",
    "shifts_per_axis",
    "spherical_kmeans",
    "spread_positions",
    "with_raw_pixels",
]
