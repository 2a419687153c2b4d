# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Anomaly detection: a pre-trained network with statistics of the normal, how it is fitted, evaluated and used.

``detector`` joins the scores of ``memory_bank`` (as in PatchCore), ``gaussian`` (as in PaDiM), ``image_gaussian``,
``masked_restoration`` and ``scores``, in the fields of view of ``field_of_view`` and ``lung_view``; ``fit_handler``
fits it in an engine; ``token_features`` says of which layers, ``score_names`` which scores a network has; ``items``
says what it is judged on, ``evaluation`` and ``localization`` how well; ``report`` and ``writer`` are the handlers of
an evaluation and of an application, whose files are made by ``results``, ``secondary_capture`` and ``worklist``;
``released`` keeps a fitted detector in one file.
"""

from __future__ import annotations

from monai_afire.anomaly.detector import AnomalyDetector
from monai_afire.anomaly.evaluation import evaluate_scores
from monai_afire.anomaly.field_of_view import fixed_view, moved, random_views
from monai_afire.anomaly.fit_handler import DetectorAUC, DetectorFit, ThresholdsAt
from monai_afire.anomaly.gaussian import TokenDensity
from monai_afire.anomaly.image_gaussian import ImageDensity, ledoit_wolf
from monai_afire.anomaly.items import detection_items, lesion_truth, validation_items
from monai_afire.anomaly.lung_view import LungView
from monai_afire.anomaly.masked_restoration import MaskedRestorationInferer, complementary_masks
from monai_afire.anomaly.memory_bank import NormalMemory
from monai_afire.anomaly.released import load_detector, new_detector, save_detector, with_student_as_teacher
from monai_afire.anomaly.report import AnomalyReport
from monai_afire.anomaly.score_names import MAP_NAMES, SCORE_NAMES
from monai_afire.anomaly.scores import aggregate_tokens, anomaly_score, interior_tokens, prototype_distance
from monai_afire.anomaly.secondary_capture import NoStudyError, read_source, secondary_capture
from monai_afire.anomaly.token_features import FrozenEncoder, tokens_and_features
from monai_afire.anomaly.worklist import WorklistSummary, hottest_place, write_worklist
from monai_afire.anomaly.writer import AnomalyWriter

__all__ = [
    "MAP_NAMES",
    "SCORE_NAMES",
    "AnomalyDetector",
    "AnomalyReport",
    "AnomalyWriter",
    "DetectorAUC",
    "DetectorFit",
    "FrozenEncoder",
    "ImageDensity",
    "LungView",
    "MaskedRestorationInferer",
    "NoStudyError",
    "NormalMemory",
    "ThresholdsAt",
    "TokenDensity",
    "WorklistSummary",
    "aggregate_tokens",
    "anomaly_score",
    "complementary_masks",
    "detection_items",
    "evaluate_scores",
    "fixed_view",
    "hottest_place",
    "interior_tokens",
    "ledoit_wolf",
    "lesion_truth",
    "load_detector",
    "moved",
    "new_detector",
    "prototype_distance",
    "random_views",
    "read_source",
    "save_detector",
    "secondary_capture",
    "tokens_and_features",
    "validation_items",
    "with_student_as_teacher",
    "write_worklist",
]
