# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handlers for ignite engines: teacher, schedules, gradients, checkpoints, previews, progress."""

from __future__ import annotations

from monai_afire.handlers.checkpoint import ResumableCheckpoint
from monai_afire.handlers.class_names_file import ClassNamesFile
from monai_afire.handlers.closing_message import ClosingMessage
from monai_afire.handlers.feature_probe import KNNProbe
from monai_afire.handlers.gradients import FreezeParameters, GradientClipping
from monai_afire.handlers.nonfinite_loss import NonFiniteLoss
from monai_afire.handlers.preview import CorrespondencePreview, RestorationPreview, TokenColorPreview
from monai_afire.handlers.progress import TrainingProgressBar
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.handlers.reports.anomaly_report import AnomalyReport
from monai_afire.handlers.reports.classification_report import (
    ClassificationReport,
    MulticlassReport,
    classification_report,
)
from monai_afire.handlers.reports.landmark_report import LandmarkReport
from monai_afire.handlers.reports.metrics_report import MetricsReport
from monai_afire.handlers.reports.segmentation_report import SegmentationReport
from monai_afire.handlers.scalars import AFiReScalars, TrainingScalars
from monai_afire.handlers.schedules import AttributeSchedule, OptimizerSchedule, cosine_schedule, linear_schedule
from monai_afire.handlers.summary import MainRankSummaryWriter
from monai_afire.handlers.teacher import TeacherUpdate, is_optimizer_step
from monai_afire.handlers.threshold_fit import DetectorFit, ThresholdFit, ThresholdsAt
from monai_afire.handlers.validation import EpochValidation, ResumableEarlyStop
from monai_afire.handlers.warm_start import HeadWarmStart
from monai_afire.handlers.writers.anomaly_writer import AnomalyWriter
from monai_afire.handlers.writers.embedding_writer import EmbeddingWriter
from monai_afire.handlers.writers.mask_writer import LandmarkWriter, SegmentationWriter
from monai_afire.handlers.writers.prediction_writer import PredictionWriter
from monai_afire.handlers.writers.restoration_writer import RestorationWriter

__all__ = [
    "AFiReScalars",
    "AnomalyReport",
    "AnomalyWriter",
    "AttributeSchedule",
    "ClassNamesFile",
    "ClassificationReport",
    "ClosingMessage",
    "CorrespondencePreview",
    "DetectorFit",
    "EmbeddingWriter",
    "EpochSeed",
    "EpochValidation",
    "FreezeParameters",
    "GradientClipping",
    "HeadWarmStart",
    "KNNProbe",
    "LandmarkReport",
    "LandmarkWriter",
    "MainRankSummaryWriter",
    "MetricsReport",
    "MulticlassReport",
    "NonFiniteLoss",
    "OptimizerSchedule",
    "PredictionWriter",
    "RestorationPreview",
    "RestorationWriter",
    "ResumableCheckpoint",
    "ResumableEarlyStop",
    "SegmentationReport",
    "SegmentationWriter",
    "TeacherUpdate",
    "ThresholdFit",
    "ThresholdsAt",
    "TokenColorPreview",
    "TrainingProgressBar",
    "TrainingScalars",
    "classification_report",
    "cosine_schedule",
    "is_optimizer_step",
    "linear_schedule",
]
