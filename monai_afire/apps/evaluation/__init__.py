# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What reports say of predictions: metrics with intervals by patient, in subgroups, of maps and masks."""

from __future__ import annotations

from monai_afire.apps.evaluation.binary_metrics import bootstrap_interval, metrics_at_threshold
from monai_afire.apps.evaluation.classification_metrics import classification_metrics
from monai_afire.apps.evaluation.group_metrics import subgroup_metrics
from monai_afire.apps.evaluation.localization import aupro, pixel_auroc, pointing_game
from monai_afire.apps.evaluation.matched_pairs import matched_pair_auc, matched_pairs
from monai_afire.apps.evaluation.multiclass_metrics import multiclass_metrics
from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
)
from monai_afire.apps.evaluation.score_evaluation import evaluate_scores
from monai_afire.apps.evaluation.segmentation_metrics import segmentation_metrics

__all__ = [
    "aupro",
    "bootstrap_aucs",
    "bootstrap_interval",
    "bootstrap_p_value",
    "classification_metrics",
    "evaluate_scores",
    "matched_pair_auc",
    "matched_pairs",
    "metrics_at_threshold",
    "multiclass_metrics",
    "patient_weights",
    "pixel_auroc",
    "pointing_game",
    "segmentation_metrics",
    "subgroup_metrics",
]
