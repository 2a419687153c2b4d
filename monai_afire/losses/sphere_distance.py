# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Squared distances of vectors on the unit sphere."""

from __future__ import annotations

import torch

from monai_afire.utils.precision import at_least_float32

__all__ = ["length", "sphere_distance"]

# no embedding counts as shorter: an embedding of zeros then has a finite loss and gradient
SHORTEST = 1e-6


def length(vectors: torch.Tensor) -> torch.Tensor:
    """Euclidean length of vectors ``(..., H)``, never 0."""
    return torch.linalg.vector_norm(at_least_float32(vectors), dim=-1).clamp_min(SHORTEST)


def sphere_distance(student: torch.Tensor, teacher: torch.Tensor, teacher_length: torch.Tensor) -> torch.Tensor:
    """
    Squared distance ``(...,)`` of vectors ``(..., H)`` after L2 normalisation, as 2 - 2 cos.

    The lengths are divided out of the product, which spares two normalised copies of the vectors.
    """
    student = at_least_float32(student)
    product = (student * teacher.to(student.dtype)).sum(-1)
    return 2 - 2 * product / (length(student) * teacher_length.to(student.dtype))
