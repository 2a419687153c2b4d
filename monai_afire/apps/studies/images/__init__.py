# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Images of a study: what is known of them, reading and sampling, affine perturbations, boxes."""

from __future__ import annotations

from monai_afire.apps.studies.images.affine import (
    DEFAULT_PERTURBATIONS,
    WINDOW,
    Perturbation,
    landmark_windows,
    perturbed_images,
    with_perturbations,
)
from monai_afire.apps.studies.images.boxes import (
    box_masks,
    crop_and_resize,
    random_boxes,
    split_boxes,
)
from monai_afire.apps.studies.images.reading import disease_set, native_size, read_study_images
from monai_afire.apps.studies.images.study_images import (
    StudyImages,
    names_or_numbers,
    reference_indices,
)

__all__ = [
    "DEFAULT_PERTURBATIONS",
    "WINDOW",
    "Perturbation",
    "StudyImages",
    "box_masks",
    "crop_and_resize",
    "disease_set",
    "landmark_windows",
    "names_or_numbers",
    "native_size",
    "perturbed_images",
    "random_boxes",
    "read_study_images",
    "reference_indices",
    "split_boxes",
    "with_perturbations",
]
