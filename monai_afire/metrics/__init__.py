# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of pre-training, and those that training chooses by: mean AUC, radial error, probes of features."""

from __future__ import annotations

from monai_afire.metrics.ace import ACEMetrics, ace_correspondence
from monai_afire.metrics.afire import AFiReMetrics, position_accuracy
from monai_afire.metrics.dino import DINOMetrics, crop_accuracy
from monai_afire.metrics.landmark_errors import MeanRadialError, radial_errors
from monai_afire.metrics.linear_probe import fit_linear_probe
from monai_afire.metrics.mae import MAEMetrics, reconstruction_gain, reconstruction_variety
from monai_afire.metrics.multilabel import MeanAUC, mean_auc
from monai_afire.metrics.nearest_neighbors import knn_predict
from monai_afire.metrics.peac import PEACMetrics, order_accuracy
from monai_afire.metrics.pretraining import (
    PretrainingMetrics,
    correspondence_accuracy,
    embedding_spread,
    prototype_information,
    restoration_gain,
)

__all__ = [
    "ACEMetrics",
    "AFiReMetrics",
    "DINOMetrics",
    "MAEMetrics",
    "MeanAUC",
    "MeanRadialError",
    "PEACMetrics",
    "PretrainingMetrics",
    "ace_correspondence",
    "correspondence_accuracy",
    "crop_accuracy",
    "embedding_spread",
    "fit_linear_probe",
    "knn_predict",
    "mean_auc",
    "order_accuracy",
    "position_accuracy",
    "prototype_information",
    "radial_errors",
    "reconstruction_gain",
    "reconstruction_variety",
    "restoration_gain",
]
