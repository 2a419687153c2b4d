# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Means, or sums as printed, over what belongs to one sample."""

from __future__ import annotations

import torch

__all__ = ["REDUCTIONS", "check_reduction", "reduced"]

REDUCTIONS = ("mean", "sum")


def check_reduction(reduction: str) -> str:
    """The reduction, if it is one of :data:`REDUCTIONS`."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {REDUCTIONS}, got {reduction!r}")
    return reduction


def reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    """Values ``(B, ...)`` to ``(B,)``, by their mean or sum over all axes but the first."""
    values = values.flatten(1)
    return values.mean(1) if reduction == "mean" else values.sum(1)
