# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The loss of exclusive classes against a loop, and its choice."""

from __future__ import annotations

import math

import pytest
import torch

from monai_afire.losses import MaskedMulticlassLoss, MaskedMultilabelLoss, classification_loss

NAN = math.nan


def test_equals_a_loop_with_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(6, 4, generator=generator, dtype=torch.float64)
    classes = [0, 3, -1, 2, 2, -1]
    labels = torch.zeros(6, 4, dtype=torch.float64)
    for row, number in enumerate(classes):
        labels[row] = NAN if number == -1 else torch.eye(4, dtype=torch.float64)[number]
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for row, number in enumerate(classes):
        if number != -1:
            total = total - (theirs[row, number] - sum(value.exp() for value in theirs[row]).log())
    expected = total / 4
    loss = MaskedMulticlassLoss()(ours, labels)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_without_a_known_class_loss_and_gradients_are_zero() -> None:
    logits = torch.tensor([[NAN, math.inf], [1.0, 2.0]], requires_grad=True)
    loss = MaskedMulticlassLoss()(logits, torch.full((2, 2), NAN))
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()  # type: ignore[union-attr]
    one = torch.tensor([[NAN, math.inf], [1.0, 1.0]], requires_grad=True)
    loss = MaskedMulticlassLoss()(one, torch.tensor([[NAN, NAN], [0.0, 1.0]]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert one.grad.isfinite().all()  # type: ignore[union-attr]


@pytest.mark.parametrize("labels", [[[1.0, 1.0]], [[0.0, 0.0]], [[-1.0, 1.0]], [[0.5, 0.5]]])
def test_lists_of_findings_are_refused(labels: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="multilabel"):
        MaskedMulticlassLoss()(torch.zeros(1, 2), torch.tensor(labels))


def test_shapes_and_kinds_are_named() -> None:
    with pytest.raises(ValueError, match=r"labels \(B, K\)"):
        MaskedMulticlassLoss()(torch.zeros(2, 3), torch.zeros(2))
    assert isinstance(classification_loss("multilabel", "ones"), MaskedMultilabelLoss)
    with pytest.raises(ValueError, match="uncertain"):
        classification_loss("multiclass", "ones")
    with pytest.raises(ValueError, match="label_kind"):
        classification_loss("multi")
    with pytest.raises(ValueError, match="positive_weight"):
        classification_loss("multiclass", positive_weight=[1.0, 2.0])
