# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Exponential moving average (EMA) of a student's weights, for teachers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

__all__ = ["update_ema"]


def update_ema(teachers: Sequence[nn.Module], students: Sequence[nn.Module], decay: float) -> None:
    r"""
    Move each teacher's parameters towards its student's.

    .. math:: \theta^T \leftarrow \lambda\theta^T + (1-\lambda)\theta^S

    One fused operation over all tensors of all modules. Buffers stay as they are.

    Args:
        teachers: modules to move.
        students: as many modules of the same structure.
        decay: λ in [0, 1]; 1 keeps the teachers, 0 copies the students.

    Raises:
        ValueError: for another decay.

    Example:
        >>> teacher, student = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.zeros_(teacher.weight), nn.init.ones_(student.weight)
        >>> update_ema([teacher], [student], decay=0.75)
        >>> float(teacher.weight)
        0.25
    """
    moving: list[torch.Tensor] = [parameter for module in teachers for parameter in module.parameters()]
    leading: list[torch.Tensor] = [parameter for module in students for parameter in module.parameters()]
    get_ema_multi_avg_fn(decay)(moving, leading, None)
