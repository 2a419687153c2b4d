# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What is looked at: images with what is known of them, which of them, other views, boxes in them."""

from __future__ import annotations

from monai_afire.analysis.images.boxes import box_masks, crop_and_resize, random_boxes, split_boxes
from monai_afire.analysis.images.reading import disease_set, read_study_images
from monai_afire.analysis.images.sampling import reference_indices, sample_images
from monai_afire.analysis.images.study_images import StudyImages, names_or_numbers
from monai_afire.analysis.images.views import (
    ACROSS,
    DEFAULT_VIEWS,
    View,
    compared_across,
    landmark_windows,
    transformed_views,
    with_views,
)

__all__ = [
    "ACROSS",
    "DEFAULT_VIEWS",
    "StudyImages",
    "View",
    "box_masks",
    "sample_images",
    "compared_across",
    "crop_and_resize",
    "disease_set",
    "landmark_windows",
    "names_or_numbers",
    "random_boxes",
    "read_study_images",
    "reference_indices",
    "split_boxes",
    "transformed_views",
    "with_views",
]
