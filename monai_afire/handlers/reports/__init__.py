# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reports of evaluations: a table with a row per image, metrics, pictures."""

from __future__ import annotations

from monai_afire.handlers.reports.anomaly_report import AnomalyReport
from monai_afire.handlers.reports.classification_report import (
    ClassificationReport,
    MulticlassReport,
    classification_report,
)
from monai_afire.handlers.reports.landmark_report import LandmarkReport
from monai_afire.handlers.reports.metrics_report import MetricsReport, PicturedReport
from monai_afire.handlers.reports.segmentation_report import SegmentationReport

__all__ = [
    "AnomalyReport",
    "ClassificationReport",
    "LandmarkReport",
    "MetricsReport",
    "MulticlassReport",
    "PicturedReport",
    "SegmentationReport",
    "classification_report",
]
