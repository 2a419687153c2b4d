# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Anomaly detection: a pre-trained network with statistics of the normal, how it is fitted, evaluated and used.

``detector`` is a loop over ``scores``. Each of these is a class by the rules of ``image_score``: it measures what
``described_images`` have of the network (``token_features``, ``masked_restoration``), by ``score_equations`` or by
``normal_statistics`` (as in PaDiM and PatchCore), in the fields of view of ``field_of_view``. ``detection_items`` lists
the images that a detector is evaluated on, ``evaluation`` computes how well it does. ``detector_file`` keeps a fitted
one in one file, ``calibration`` compares its scores with those of normal images. The handlers of an engine are
:class:`monai_afire.handlers.DetectorFit`, :class:`monai_afire.apps.results.AnomalyReport` and
:class:`monai_afire.apps.worklist.AnomalyWriter`.
"""

from __future__ import annotations

from monai_afire.detection.calibration import (
    DetectorNormals,
    Judgment,
    NormalImages,
    load_normals,
    normals_from,
    save_normals,
)
from monai_afire.detection.conformal import (
    conformal_p_values,
    discoveries,
    normals_needed,
    weighted_p_values,
)
from monai_afire.detection.described_images import DescribedImages
from monai_afire.detection.detection_items import detection_items, lesion_truth, validation_items
from monai_afire.detection.detector import AnomalyDetector
from monai_afire.detection.detector_file import (
    load_detector,
    save_detector,
    with_student_as_teacher,
)
from monai_afire.detection.evaluation import DetectorAUC, evaluate_scores
from monai_afire.detection.field_of_view import LungView, fixed_view, moved, random_views
from monai_afire.detection.image_score import (
    ImageScore,
    MeasuredImages,
    ScoreSettings,
    TokenMap,
)
from monai_afire.detection.masked_restoration import MaskedRestorationInferer, complementary_masks
from monai_afire.detection.normal_statistics import ImageDensity, NormalMemory, TokenDensity
from monai_afire.detection.score_equations import (
    aggregate_tokens,
    anomaly_score,
    interior_tokens,
    prototype_distance,
)
from monai_afire.detection.scores import SCORE_NAMES, SCORES
from monai_afire.detection.support import FeatureSpace, ImageFacts
from monai_afire.detection.token_features import FrozenEncoder, tokens_and_features

__all__ = [
    "AnomalyDetector",
    "DetectorAUC",
    "DescribedImages",
    "DetectorNormals",
    "FeatureSpace",
    "FrozenEncoder",
    "ImageDensity",
    "ImageFacts",
    "ImageScore",
    "Judgment",
    "LungView",
    "MaskedRestorationInferer",
    "MeasuredImages",
    "NormalImages",
    "NormalMemory",
    "SCORES",
    "SCORE_NAMES",
    "ScoreSettings",
    "TokenDensity",
    "TokenMap",
    "aggregate_tokens",
    "anomaly_score",
    "complementary_masks",
    "conformal_p_values",
    "detection_items",
    "discoveries",
    "evaluate_scores",
    "fixed_view",
    "interior_tokens",
    "lesion_truth",
    "load_detector",
    "load_normals",
    "moved",
    "normals_from",
    "normals_needed",
    "prototype_distance",
    "random_views",
    "save_detector",
    "save_normals",
    "tokens_and_features",
    "validation_items",
    "weighted_p_values",
    "with_student_as_teacher",
]
