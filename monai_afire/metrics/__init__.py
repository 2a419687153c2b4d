# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of pre-training, classification, segmentation, landmarks and localization."""

from __future__ import annotations

from monai_afire.metrics.ace import ACEMetrics, ace_correspondence, ace_metrics
from monai_afire.metrics.afire import AFiReMetrics, afire_metrics, position_accuracy
from monai_afire.metrics.binary_classification import (
    average_precision,
    best_f1_threshold,
    bootstrap_interval,
    matched_pair_auc,
    matched_pairs,
    metrics_at_threshold,
    roc_auc,
)
from monai_afire.metrics.dino import DINOMetrics, crop_accuracy, dino_metrics
from monai_afire.metrics.group_metrics import subgroup_metrics
from monai_afire.metrics.landmark_errors import (
    MeanRadialError,
    landmark_positions,
    radial_errors,
    rescaled_positions,
    success_rates,
)
from monai_afire.metrics.linear_probe import LinearProbe, fit_linear_probe
from monai_afire.metrics.localization import aupro, pixel_auroc, pointing_game
from monai_afire.metrics.mae import (
    MAEMetrics,
    mae_metrics,
    reconstruction_gain,
    reconstruction_variety,
)
from monai_afire.metrics.multiclass import (
    confusion_matrix,
    expected_calibration_error,
    multiclass_metrics,
    quadratic_weighted_kappa,
)
from monai_afire.metrics.multilabel import (
    MeanAUC,
    best_thresholds,
    classification_metrics,
    mean_auc,
)
from monai_afire.metrics.nearest_neighbors import knn_predict
from monai_afire.metrics.patient_bootstrap import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
    weighted_metrics,
)
from monai_afire.metrics.peac import PEACMetrics, order_accuracy, peac_correspondence, peac_metrics
from monai_afire.metrics.pretraining import (
    DefinedAverage,
    PretrainingMetrics,
    correspondence_accuracy,
    embedding_spread,
    prototype_entropy,
    prototype_information,
    restoration_gain,
)
from monai_afire.metrics.segmentation import MaskDice, segmentation_metrics

__all__ = [
    "DINOMetrics",
    "ACEMetrics",
    "AFiReMetrics",
    "DefinedAverage",
    "LinearProbe",
    "MAEMetrics",
    "MaskDice",
    "MeanAUC",
    "MeanRadialError",
    "PEACMetrics",
    "PretrainingMetrics",
    "ace_correspondence",
    "ace_metrics",
    "afire_metrics",
    "aupro",
    "average_precision",
    "best_f1_threshold",
    "best_thresholds",
    "bootstrap_aucs",
    "bootstrap_interval",
    "bootstrap_p_value",
    "classification_metrics",
    "confusion_matrix",
    "correspondence_accuracy",
    "crop_accuracy",
    "dino_metrics",
    "embedding_spread",
    "expected_calibration_error",
    "fit_linear_probe",
    "knn_predict",
    "landmark_positions",
    "mae_metrics",
    "matched_pair_auc",
    "matched_pairs",
    "mean_auc",
    "metrics_at_threshold",
    "multiclass_metrics",
    "order_accuracy",
    "patient_weights",
    "peac_correspondence",
    "peac_metrics",
    "pixel_auroc",
    "pointing_game",
    "position_accuracy",
    "prototype_entropy",
    "prototype_information",
    "quadratic_weighted_kappa",
    "radial_errors",
    "reconstruction_gain",
    "reconstruction_variety",
    "rescaled_positions",
    "restoration_gain",
    "roc_auc",
    "segmentation_metrics",
    "subgroup_metrics",
    "success_rates",
    "weighted_metrics",
]
