# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Composition and decomposition: how the embedding of a region relates to those of its parts."""

from __future__ import annotations

from monai_afire.analysis.composition.figures import composition_figure, matching_figure
from monai_afire.analysis.composition.measures import (
    composition_summary,
    compositionality,
    decomposition_and_retrieval,
    similarity_density,
)
from monai_afire.analysis.composition.study import CompositionStudy

__all__ = [
    "CompositionStudy",
    "composition_figure",
    "composition_summary",
    "compositionality",
    "decomposition_and_retrieval",
    "matching_figure",
    "similarity_density",
]
