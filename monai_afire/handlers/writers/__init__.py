# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Results of inference, written to disk while it runs."""

from __future__ import annotations

from monai_afire.handlers.writers.anomaly_writer import AnomalyWriter
from monai_afire.handlers.writers.mask_writer import LandmarkWriter, SegmentationWriter
from monai_afire.handlers.writers.prediction_writer import PredictionWriter
from monai_afire.handlers.writers.restoration_writer import RestorationWriter
from monai_afire.handlers.writers.result_tables import ResultTables

__all__ = [
    "AnomalyWriter",
    "LandmarkWriter",
    "PredictionWriter",
    "RestorationWriter",
    "ResultTables",
    "SegmentationWriter",
]
