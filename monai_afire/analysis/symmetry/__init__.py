# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Symmetry: features of the right side against those of the mirrored left side."""

from __future__ import annotations

from monai_afire.analysis.symmetry.figures import partner_figure, symmetry_matrix_figure
from monai_afire.analysis.symmetry.measures import (
    landmark_symmetry,
    similarity_matrix,
    symmetric_pairs,
    symmetry_summary,
)
from monai_afire.analysis.symmetry.study import SymmetryStudy

__all__ = [
    "SymmetryStudy",
    "landmark_symmetry",
    "partner_figure",
    "similarity_matrix",
    "symmetric_pairs",
    "symmetry_matrix_figure",
    "symmetry_summary",
]
