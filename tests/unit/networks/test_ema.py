# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
from __future__ import annotations

import pytest
import torch
from torch import nn

from monai_afire.networks.blocks.ema import update_ema


def networks(number: int) -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)) for _ in range(number)]


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.9, 0.996, 0.99999, 1.0])
def test_bits_are_those_of_lerp_on_each_tensor(decay: float) -> None:
    torch.manual_seed(0)
    teachers, students = networks(2), networks(2)
    pairs = [
        (teacher, student)
        for mine, theirs in zip(teachers, students, strict=True)
        for teacher, student in zip(mine.parameters(), theirs.parameters(), strict=True)
    ]
    expected = [
        torch.lerp(teacher.detach(), student.detach(), 1 - decay) for teacher, student in pairs
    ]
    before = [student.detach().clone() for _, student in pairs]
    update_ema(teachers, students, decay)
    assert all(
        torch.equal(teacher, value) for (teacher, _), value in zip(pairs, expected, strict=True)
    )
    assert all(
        torch.equal(student, value) for (_, student), value in zip(pairs, before, strict=True)
    )
    assert all(teacher.grad_fn is None and teacher.requires_grad for teacher, _ in pairs)


def test_statistics_of_batch_normalization_follow_the_student() -> None:
    (teacher,), (student,) = networks(1), networks(1)
    student(torch.rand(4, 5))
    assert any(
        not torch.equal(mine, given)
        for mine, given in zip(teacher.buffers(), student.buffers(), strict=True)
    )
    update_ema([teacher], [student], 0.5)
    assert all(
        torch.equal(mine, given)
        for mine, given in zip(teacher.buffers(), student.buffers(), strict=True)
    )
    assert all(buffer.grad_fn is None for buffer in teacher.buffers())
