# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Restoration: how well lesions are removed and normal anatomy is kept."""

from __future__ import annotations

from monai_afire.analysis.restoration.figures import restoration_figure
from monai_afire.analysis.restoration.measures import (
    Restorations,
    restoration_scores,
    restoration_summary,
    restorations,
)
from monai_afire.analysis.restoration.study import RestorationStudy

__all__ = [
    "RestorationStudy",
    "Restorations",
    "restoration_figure",
    "restoration_scores",
    "restoration_summary",
    "restorations",
]
