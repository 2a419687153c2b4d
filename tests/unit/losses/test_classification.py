# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The losses of several findings and of exclusive classes against loops over the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from monai_afire.losses import MaskedMulticlassLoss, MaskedMultilabelLoss, classification_loss

NAN = math.nan
POLICIES = {"ignore": None, "ones": 1.0, "zeros": 0.0}


def random_batch(
    seed: int, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 7)), int(rng.integers(1, 6)))
    labels = rng.choice([0.0, 1.0, -1.0, NAN], shape, p=rng.dirichlet(np.ones(4)))
    return torch.tensor(rng.normal(0, 3, shape), dtype=dtype, requires_grad=True), torch.tensor(
        labels, dtype=dtype
    )


def naive(
    logits: torch.Tensor, labels: torch.Tensor, policy: str, weights: Sequence[float] | None = None
) -> tuple[float, np.ndarray]:
    """Loss and its gradient by the definition, number by number."""
    total, count, gradient = 0.0, 0, np.zeros(tuple(logits.shape))
    for b, row in enumerate(labels.tolist()):
        for m, label in enumerate(row):
            target = POLICIES[policy] if label == -1 else label
            if target is None or math.isnan(target):
                continue
            weight = 1.0 if weights is None else weights[m]
            p = 1 / (1 + math.exp(-float(logits[b, m])))
            total -= weight * target * math.log(p) + (1 - target) * math.log(1 - p)
            gradient[b, m] = (1 - target) * p - weight * target * (1 - p)
            count += 1
    return total / max(count, 1), gradient / max(count, 1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_gradient_equal_a_loop(policy: str, weighted: bool) -> None:
    for seed in range(5):
        check_batch(seed, policy, weighted)


def check_batch(seed: int, policy: str, weighted: bool) -> None:
    logits, labels = random_batch(seed)
    weights = np.random.default_rng(seed).uniform(0, 5, logits.shape[1]).astype(np.float32).tolist()
    weights = weights if weighted else None
    value = MaskedMultilabelLoss(policy, weights)(logits, labels)
    value.backward()
    expected, gradient = naive(logits, labels, policy, weights)
    assert float(value) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("wild", [NAN, math.inf])
def test_a_wild_logit_without_label_harms_nothing(wild: float) -> None:
    logits = torch.tensor([[wild, 0.0]], requires_grad=True)
    value = MaskedMultilabelLoss()(logits, torch.tensor([[NAN, 1.0]]))
    value.backward()
    assert float(value) == pytest.approx(math.log(2))
    assert logits.grad.tolist() == [[0.0, -0.5]]


@pytest.mark.parametrize(
    ("loss", "labels", "named"),
    [
        (MaskedMultilabelLoss(), [0.0, 0.0], "labels"),
        (MaskedMulticlassLoss(), [0.0, 1.0], "labels"),
        (MaskedMultilabelLoss(), [0.0, 1.0, 0.9], r"0\.9"),
        (MaskedMulticlassLoss(), [1.0, 1.0, 0.0], "multilabel"),
        (MaskedMulticlassLoss(), [0.5, 0.5, 0.0], "multilabel"),
    ],
)
def test_other_labels_are_refused(loss: nn.Module, labels: list[float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        loss(torch.zeros(1, 3), torch.tensor([labels]))


@pytest.mark.parametrize("weight", [[1.0, -1.0], [NAN], 2.0])
def test_impossible_weights_are_refused(weight: Any) -> None:
    with pytest.raises(ValueError, match="positive_weight"):
        MaskedMultilabelLoss(positive_weight=weight)


def test_multiclass_equals_a_loop_with_gradients() -> None:
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


def test_without_a_known_class_the_loss_and_gradients_are_zero() -> None:
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


def test_the_loss_of_a_kind_of_labels() -> None:
    assert isinstance(classification_loss("multilabel", "ones"), MaskedMultilabelLoss)
    with pytest.raises(ValueError, match="uncertain"):
        classification_loss("multiclass", "ones")
    with pytest.raises(ValueError, match="positive_weight"):
        classification_loss("multiclass", positive_weight=[1.0, 2.0])
