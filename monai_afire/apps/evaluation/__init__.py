# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What reports say of predictions: metrics with intervals by patient, in subgroups, of maps and masks."""

from __future__ import annotations

from monai_afire.apps.evaluation.localization import aupro, pointing_game
from monai_afire.apps.evaluation.matched_pairs import matched_pairs
from monai_afire.apps.evaluation.metrics import (
    classification_metrics,
    group_rows,
    multiclass_metrics,
    subgroup_metrics,
)
from monai_afire.apps.evaluation.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
    weighted_metrics,
    with_intervals,
)
from monai_afire.apps.evaluation.score_evaluation import evaluate_scores
from monai_afire.apps.evaluation.segmentation_metrics import segmentation_metrics

__all__ = [
    "aupro",
    "bootstrap_aucs",
    "bootstrap_p_value",
    "classification_metrics",
    "evaluate_scores",
    "group_rows",
    "matched_pairs",
    "multiclass_metrics",
    "patient_weights",
    "pointing_game",
    "segmentation_metrics",
    "subgroup_metrics",
    "weighted_metrics",
    "with_intervals",
]
