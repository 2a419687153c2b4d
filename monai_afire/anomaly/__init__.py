# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Anomaly detection: a pre-trained network with statistics of the normal, how it is fitted, evaluated and used.

``detector`` joins the scores of ``memory_bank`` (as in PatchCore), ``gaussian`` (as in PaDiM), ``masked_restoration``
and ``scores``; ``fit_handler`` fits it in an engine; ``items`` says what it is judged on, ``evaluation`` and
``localization`` how well; ``report`` and ``writer`` are the handlers of an evaluation and of an application, whose
files are made by ``results``, ``secondary_capture`` and ``worklist``.
"""

from __future__ import annotations

from monai_afire.anomaly.detector import MAP_NAMES, SCORE_NAMES, AnomalyDetector
from monai_afire.anomaly.evaluation import evaluate_scores
from monai_afire.anomaly.fit_handler import DetectorAUC, DetectorFit
from monai_afire.anomaly.gaussian import TokenDensity
from monai_afire.anomaly.items import detection_items, lesion_truth, validation_items
from monai_afire.anomaly.masked_restoration import MaskedRestorationInferer, complementary_masks
from monai_afire.anomaly.memory_bank import NormalMemory
from monai_afire.anomaly.report import AnomalyReport
from monai_afire.anomaly.scores import aggregate_tokens, anomaly_score, prototype_distance
from monai_afire.anomaly.secondary_capture import NoStudyError, read_source, secondary_capture
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
    "MaskedRestorationInferer",
    "NoStudyError",
    "NormalMemory",
    "TokenDensity",
    "WorklistSummary",
    "aggregate_tokens",
    "anomaly_score",
    "complementary_masks",
    "detection_items",
    "evaluate_scores",
    "hottest_place",
    "lesion_truth",
    "prototype_distance",
    "read_source",
    "secondary_capture",
    "validation_items",
    "write_worklist",
]
