# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handlers for ignite engines: a training with its files, schedules, gradients, teachers, previews."""

from __future__ import annotations

from monai_afire.handlers.feature_probe import KNNProbe
from monai_afire.handlers.gradients import AccumulationMean, FreezeParameters, GradientClipping
from monai_afire.handlers.nonfinite_loss import NonFiniteLoss
from monai_afire.handlers.preview import (
    CorrespondencePreview,
    RestorationPreview,
    TokenColorPreview,
)
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.handlers.schedules import AttributeSchedule, OptimizerSchedule, cosine_schedule
from monai_afire.handlers.teacher import TeacherUpdate
from monai_afire.handlers.threshold_fit import DetectorFit, ThresholdFit, ThresholdsAt
from monai_afire.handlers.training import Training
from monai_afire.handlers.warm_start import HeadWarmStart

__all__ = [
    "AccumulationMean",
    "AttributeSchedule",
    "CorrespondencePreview",
    "DetectorFit",
    "EpochSeed",
    "FreezeParameters",
    "GradientClipping",
    "HeadWarmStart",
    "KNNProbe",
    "NonFiniteLoss",
    "OptimizerSchedule",
    "RestorationPreview",
    "TeacherUpdate",
    "ThresholdFit",
    "ThresholdsAt",
    "TokenColorPreview",
    "Training",
    "cosine_schedule",
]
