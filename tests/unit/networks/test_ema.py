# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
from __future__ import annotations

import pytest
import torch
from torch import nn

from monai_afire.networks.blocks.ema import update_ema


def networks(number: int) -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)) for _ in range(number)]


@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0])
def test_teachers_are_interpolated(decay: float) -> None:
    teachers, students = networks(2), networks(2)
    of_both = [[each for net in nets for each in net.parameters()] for nets in (teachers, students)]
    expected = [
        decay * mine.detach() + (1 - decay) * given for mine, given in zip(*of_both, strict=True)
    ]
    before = [student.detach().clone() for student in of_both[1]]
    update_ema(teachers, students, decay)
    torch.testing.assert_close(
        [each.detach() for each in of_both[0]], [each.detach() for each in expected]
    )
    assert all(map(torch.equal, of_both[1], before))


def test_statistics_of_batch_normalization_follow_the_student() -> None:
    (teacher,), (student,) = networks(1), networks(1)
    student(torch.rand(4, 5))
    update_ema([teacher], [student], 0.5)
    assert student[1].running_mean.any()
    assert all(map(torch.equal, teacher.buffers(), student.buffers()))
