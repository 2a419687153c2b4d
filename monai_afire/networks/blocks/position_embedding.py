# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Position embeddings: their interpolation, and MONAI's without what PyTorch says of their making."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F

from monai_afire.utils.device import widest_float


@contextmanager
def without_meshgrid_warning() -> Iterator[None]:
    """Leave out PyTorch's warning of the missing ``indexing``, which MONAI's code causes and no user can mend."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.meshgrid")
        yield


def resize_matrix(old: int, new: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Bicubic, antialiased interpolation along one axis as a matrix; that of an image is one per axis."""
    # the rows of an identity matrix; not one column at a time, since PyTorch errs for images one pixel wide
    identity = torch.eye(old, dtype=widest_float(device), device=device)[None, None]
    return F.interpolate(identity, (new, old), mode="bicubic", antialias=True)[0, 0]


def resize_position_embedding(
    embedding: torch.Tensor, old_grid: Sequence[int], new_grid: Sequence[int]
) -> torch.Tensor:
    """Interpolate position embeddings on the grid of patches, on their device and with their gradient."""
    values = embedding.to(widest_float(embedding.device)).reshape(*old_grid, -1)
    matrices = [
        resize_matrix(old, new, values.device) for old, new in zip(old_grid, new_grid, strict=True)
    ]
    return (
        along_axes(values, matrices, first=0)
        .reshape(1, math.prod(new_grid), -1)
        .to(embedding.dtype)
    )


def along_axes(values: torch.Tensor, matrices: Sequence[torch.Tensor], first: int) -> torch.Tensor:
    """Multiply consecutive axes of a tensor by one matrix each."""
    for axis, matrix in enumerate(matrices, start=first):
        values = torch.tensordot(values, matrix.to(values), dims=([axis], [1])).movedim(-1, axis)
    return values
