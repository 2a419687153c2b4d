# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Exponential moving average (EMA) of a student's weights, for teachers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from monai_afire.utils.distributed import all_reduce


def update_ema(teachers: Sequence[nn.Module], students: Sequence[nn.Module], decay: float) -> None:
    r"""
    Move each teacher's parameters towards its student's.

    .. math:: \theta^T \leftarrow \lambda\theta^T + (1-\lambda)\theta^S

    λ is the decay in [0, 1]; 1 keeps the teachers, 0 copies the students. One fused operation over all parameters of
    all modules. Buffers are copied, since a teacher in evaluation mode does not measure the statistics of its batch
    normalizations.
    """
    moving, leading = nn.ModuleList(teachers), nn.ModuleList(students)
    move = get_ema_multi_avg_fn(decay)
    move(tuple(moving.parameters()), tuple(leading.parameters()), None)
    with torch.no_grad():
        for mine, given in zip(moving.buffers(), leading.buffers(), strict=True):
            mine.copy_(given)


class TeacherNetwork(nn.Module):
    """
    Base of methods with a teacher: frozen copies of some modules, in evaluation mode, that follow the student's.

    The copy of the module ``name`` is ``teacher_name``. A subclass calls :meth:`add_teachers` when its modules stand.
    """

    taught: ClassVar[tuple[str, ...]] = ("encoder",)
    teacher_decay: float

    def add_teachers(self) -> None:
        """Copy the modules named in ``taught``."""
        for name in self.taught:
            teacher = copy.deepcopy(getattr(self, name))
            self.add_module(f"teacher_{name}", teacher.requires_grad_(False))

    def update_teacher(self) -> None:
        """Move the teacher towards the student by ``teacher_decay``; call it after every step of the optimizer."""
        students = [getattr(self, name) for name in self.taught]
        update_ema(self._teachers(), students, self.teacher_decay)

    def train(self, mode: bool = True) -> TeacherNetwork:
        """Set the student's mode; the teacher stays in evaluation mode."""
        super().train(mode)
        for teacher in self._teachers():
            teacher.eval()
        return self

    def _teachers(self) -> list[nn.Module]:
        return [getattr(self, f"teacher_{name}") for name in self.taught]


def check_momentum(name: str, momentum: float) -> None:
    """Refuse a share of the former value that is none, or with which nothing moves."""
    if not 0 <= momentum < 1:
        raise ValueError(f"{name} must be in [0, 1), got {momentum}")


def update_center(center: torch.Tensor, values: torch.Tensor, momentum: float) -> None:
    """Move a center ``(D,)`` in place towards the mean of the values ``(M, D)`` of all processes."""
    total = all_reduce(values.to(center.dtype).sum(0))
    count = all_reduce(total.new_full((), len(values)))
    center.lerp_(total / count, 1 - momentum)
