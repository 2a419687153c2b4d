# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Anomaly detection: a pre-trained network with statistics of the normal, how it is fitted, evaluated and used.

``detector`` joins the scores of ``normal_statistics`` (as in PaDiM and PatchCore), ``masked_restoration`` and
``scores``, in the fields of view of ``field_of_view``, on features of ``token_features``. ``items`` lists the images
that it is evaluated on, ``evaluation`` computes how well it does. ``secondary_capture``, ``structured_report`` and
``worklist`` make files for a hospital, ``released`` keeps a fitted detector in one file. The handlers of an engine are
:class:`monai_afire.handlers.DetectorFit`, :class:`monai_afire.handlers.AnomalyReport` and
:class:`monai_afire.handlers.AnomalyWriter`.
"""

from __future__ import annotations

from monai_afire.anomaly.batch_report import Drift, flag_rates, measure_drift
from monai_afire.anomaly.conformal import conformal_p_values, discoveries
from monai_afire.anomaly.detector import AnomalyDetector
from monai_afire.anomaly.evaluation import DetectorAUC, evaluate_scores
from monai_afire.anomaly.field_of_view import LungView, fixed_view, moved, random_views
from monai_afire.anomaly.items import detection_items, lesion_truth, validation_items
from monai_afire.anomaly.lung_zones import lung_zone
from monai_afire.anomaly.masked_restoration import MaskedRestorationInferer, complementary_masks
from monai_afire.anomaly.normal_statistics import ImageDensity, NormalMemory, TokenDensity
from monai_afire.anomaly.released import load_detector, save_detector, with_student_as_teacher
from monai_afire.anomaly.scores import (
    MAP_NAMES,
    SCORE_NAMES,
    aggregate_tokens,
    anomaly_score,
    interior_tokens,
    prototype_distance,
)
from monai_afire.anomaly.secondary_capture import NoStudyError, read_source, secondary_capture
from monai_afire.anomaly.structured_report import structured_report
from monai_afire.anomaly.token_features import FrozenEncoder, tokens_and_features
from monai_afire.anomaly.worklist import WorklistSummary, hottest_place, write_worklist
from monai_afire.anomaly.worklist_page import write_worklist_page

__all__ = [
    "MAP_NAMES",
    "SCORE_NAMES",
    "AnomalyDetector",
    "DetectorAUC",
    "Drift",
    "FrozenEncoder",
    "ImageDensity",
    "LungView",
    "MaskedRestorationInferer",
    "NoStudyError",
    "NormalMemory",
    "TokenDensity",
    "WorklistSummary",
    "aggregate_tokens",
    "anomaly_score",
    "complementary_masks",
    "conformal_p_values",
    "detection_items",
    "discoveries",
    "evaluate_scores",
    "fixed_view",
    "flag_rates",
    "hottest_place",
    "interior_tokens",
    "lesion_truth",
    "load_detector",
    "lung_zone",
    "measure_drift",
    "moved",
    "prototype_distance",
    "random_views",
    "read_source",
    "save_detector",
    "secondary_capture",
    "structured_report",
    "tokens_and_features",
    "validation_items",
    "with_student_as_teacher",
    "write_worklist",
    "write_worklist_page",
]
