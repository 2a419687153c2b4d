# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handlers for ignite engines: teacher, schedules, gradients, checkpoints, previews, progress."""

from __future__ import annotations

from monai_afire.handlers.checkpoint import ResumableCheckpoint
from monai_afire.handlers.detection import DetectorFit
from monai_afire.handlers.detection_writer import DetectionWriter
from monai_afire.handlers.evaluation_report import EvaluationReport
from monai_afire.handlers.gradients import FreezeParameters, GradientClipping
from monai_afire.handlers.metrics_report import MetricsReport
from monai_afire.handlers.preview import CorrespondencePreview, RestorationPreview
from monai_afire.handlers.progress import ClosingMessage, TrainingProgressBar
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.handlers.schedules import AttributeSchedule, OptimizerSchedule, cosine_schedule, linear_schedule
from monai_afire.handlers.teacher import TeacherUpdate, is_optimizer_step

__all__ = [
    "AttributeSchedule",
    "ClosingMessage",
    "CorrespondencePreview",
    "DetectionWriter",
    "DetectorFit",
    "EpochSeed",
    "EvaluationReport",
    "FreezeParameters",
    "GradientClipping",
    "MetricsReport",
    "OptimizerSchedule",
    "ResumableCheckpoint",
    "RestorationPreview",
    "TeacherUpdate",
    "TrainingProgressBar",
    "cosine_schedule",
    "is_optimizer_step",
    "linear_schedule",
]
