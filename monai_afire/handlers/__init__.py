# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handlers for ignite engines: teacher, schedules, gradients, checkpoints, previews, progress."""

from __future__ import annotations

from monai_afire.handlers.checkpoint import ResumableCheckpoint
from monai_afire.handlers.feature_probe import KNNProbe
from monai_afire.handlers.gradients import FreezeParameters, GradientClipping
from monai_afire.handlers.nonfinite_loss import NonFiniteLoss
from monai_afire.handlers.preview import (
    CorrespondencePreview,
    RestorationPreview,
    TokenColorPreview,
)
from monai_afire.handlers.progress import TrainingProgressBar
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.handlers.schedules import AttributeSchedule, OptimizerSchedule, cosine_schedule
from monai_afire.handlers.teacher import TeacherUpdate
from monai_afire.handlers.threshold_fit import DetectorFit, ThresholdFit, ThresholdsAt
from monai_afire.handlers.training_run import TrainingRun
from monai_afire.handlers.validation import ResumableEarlyStop
from monai_afire.handlers.warm_start import HeadWarmStart

__all__ = [
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
    "ResumableCheckpoint",
    "ResumableEarlyStop",
    "TeacherUpdate",
    "ThresholdFit",
    "ThresholdsAt",
    "TokenColorPreview",
    "TrainingProgressBar",
    "TrainingRun",
    "cosine_schedule",
]
