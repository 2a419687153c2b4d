# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""DINO's loss against loops."""

from __future__ import annotations

import pytest
import torch
from naive import dino

from monai_afire.losses import DINOLoss


def scores(seen: int, crops: int) -> tuple[torch.Tensor, ...]:
    """Scores of a student and a teacher, and a center."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, crops, 7), (3, seen, 7), (7,))
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)


@pytest.mark.parametrize(("seen", "crops"), [(2, 5), (1, 3), (3, 3)])
def test_loss_and_gradient_equal_loops(seen: int, crops: int) -> None:
    student, teacher, center = scores(seen, crops)
    student.requires_grad_()
    loss_function = DINOLoss()
    outputs = {
        "student": (student / 0.1).log_softmax(-1),
        "teacher": ((teacher - center) / 0.4).softmax(-1),
    }
    loss = loss_function(outputs)
    expected = dino.dino_loss(student, teacher, center, 0.1, 0.4)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    ours, theirs = (torch.autograd.grad(value, student)[0] for value in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    assert ours[:, 1:].abs().min() > 0
    rows = [dino.softmax(row - center, 0.4) for row in teacher.flatten(0, 1)]
    entropy = sum(map(dino.entropy, rows)) / len(rows)
    assert float(loss_function.terms["entropy"]) == pytest.approx(entropy)
    divergence = float(expected.detach()) - entropy
    assert float(loss_function.terms["divergence"]) == pytest.approx(divergence)
