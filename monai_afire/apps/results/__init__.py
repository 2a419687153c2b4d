# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What applications write: reports of evaluations, tables of results, pages for a browser."""

from __future__ import annotations

from monai_afire.apps.results.anomaly_report import AnomalyReport
from monai_afire.apps.results.classification_report import ClassificationReport
from monai_afire.apps.results.embedding_writer import EmbeddingWriter
from monai_afire.apps.results.landmark_report import LandmarkReport
from monai_afire.apps.results.mask_writer import LandmarkWriter, SegmentationWriter
from monai_afire.apps.results.metrics_report import MetricsReport, PicturedReport
from monai_afire.apps.results.prediction_writer import PredictionWriter
from monai_afire.apps.results.restoration_writer import RestorationWriter
from monai_afire.apps.results.result_tables import ResultTables
from monai_afire.apps.results.segmentation_report import SegmentationReport

__all__ = [
    "AnomalyReport",
    "ClassificationReport",
    "EmbeddingWriter",
    "LandmarkReport",
    "LandmarkWriter",
    "MetricsReport",
    "PicturedReport",
    "PredictionWriter",
    "RestorationWriter",
    "ResultTables",
    "SegmentationReport",
    "SegmentationWriter",
]
