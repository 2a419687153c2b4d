# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Saliency: Grad-CAM and attention roll-out against boxes of findings."""

from __future__ import annotations

from monai_afire.analysis.saliency.figures import saliency_figure
from monai_afire.analysis.saliency.measures import (
    LOCALIZATION_SCORES,
    attention_rollout,
    grad_cam,
    localization_scores,
    localization_summary,
)
from monai_afire.analysis.saliency.study import SaliencyStudy

__all__ = [
    "LOCALIZATION_SCORES",
    "SaliencyStudy",
    "attention_rollout",
    "grad_cam",
    "localization_scores",
    "localization_summary",
    "saliency_figure",
]
