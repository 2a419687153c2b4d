# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Property studies of an encoder's features, with nothing trained on top of them.

A study is a function of encoders and images, one module per question: the study first, then its measures and its
figures. All share ``images``, what they compare, ``regions``, what is cut out of them, ``features``, what encoders make
of it, and ``figures``. All studies take the encoders by name, the images, and, where it matters, ``max_images`` (of
more, a sample), a ``seed`` and a ``batch_size`` of the encoders. ``property_report`` writes the page of all studies:

    >>> import tempfile, torch
    >>> from monai_afire.networks import ViTEncoder
    >>> encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    >>> images = StudyImages(torch.rand(4, 1, 32, 32), group=["normal", "nodule"] * 2)
    >>> (result,) = property_report({"untrained": encoder}, images, [image_map_study], tempfile.mkdtemp())
    >>> result.table["chance_purity"].round(3).to_dict()
    {'untrained': 0.333, 'raw pixels': 0.333}
"""

from __future__ import annotations

from monai_afire.apps.studies.composition import composition_study
from monai_afire.apps.studies.correspondence import correspondence_study
from monai_afire.apps.studies.cosegmentation import cosegmentation_study
from monai_afire.apps.studies.grouping import (
    image_map_study,
    landmark_map_study,
    position_map_study,
)
from monai_afire.apps.studies.images import StudyImages, native_size, read_study_images
from monai_afire.apps.studies.pairs import pair_study
from monai_afire.apps.studies.property_report import (
    classifiers_of,
    encoders_of,
    first_described,
    property_report,
)
from monai_afire.apps.studies.prototypes import prototype_study
from monai_afire.apps.studies.restoration import restoration_study
from monai_afire.apps.studies.saliency import saliency_study
from monai_afire.apps.studies.study import StudyResult
from monai_afire.apps.studies.symmetry import symmetry_study

__all__ = [
    "StudyImages",
    "StudyResult",
    "classifiers_of",
    "composition_study",
    "correspondence_study",
    "cosegmentation_study",
    "encoders_of",
    "first_described",
    "image_map_study",
    "landmark_map_study",
    "native_size",
    "pair_study",
    "position_map_study",
    "property_report",
    "prototype_study",
    "read_study_images",
    "restoration_study",
    "saliency_study",
    "symmetry_study",
]
