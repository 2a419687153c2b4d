# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Anomaly detection: a pre-trained AFiRe with statistics of the normal, its evaluation and its results on disk."""

from __future__ import annotations

from monai_afire.anomaly.detector import MAP_NAMES, SCORE_NAMES, AnomalyDetector
from monai_afire.anomaly.evaluation import evaluate_scores
from monai_afire.anomaly.items import abnormal_label, detection_items, lesion_truth, normal_items, validation_items

__all__ = [
    "MAP_NAMES",
    "SCORE_NAMES",
    "AnomalyDetector",
    "abnormal_label",
    "detection_items",
    "evaluate_scores",
    "lesion_truth",
    "normal_items",
    "validation_items",
]
