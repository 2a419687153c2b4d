# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmark correspondence: the same anatomical position found in other patients and other exposures."""

from __future__ import annotations

from monai_afire.apps.studies.correspondence.landmarks import (
    ACROSS,
    CorrespondenceStudy,
    correspondence_figure,
    found_landmarks_figure,
    label_pairs,
    landmark_correspondence,
    same_place_correspondence,
    window_correspondence,
)
from monai_afire.apps.studies.correspondence.pairs import (
    LandmarkPair,
    PairStudy,
    pair_correspondence,
    read_landmark_pairs,
)

__all__ = [
    "ACROSS",
    "CorrespondenceStudy",
    "LandmarkPair",
    "PairStudy",
    "correspondence_figure",
    "found_landmarks_figure",
    "label_pairs",
    "landmark_correspondence",
    "pair_correspondence",
    "read_landmark_pairs",
    "same_place_correspondence",
    "window_correspondence",
]
