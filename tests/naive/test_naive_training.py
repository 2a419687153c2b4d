# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checks of the slow references of training parts and of the looped PyTorch step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from . import afire, afire_gradients, afire_training, published_step
from .test_naive_afire import random_case


def test_cosine_schedule_by_hand() -> None:
    values = [afire_training.cosine_schedule(s, 7, 2.0, 0.0, warmup_steps=2) for s in range(9)]
    quarter = 1.0 + math.sqrt(0.5)
    np.testing.assert_allclose(
        values, [0.0, 1.0, 2.0, quarter, 1.0, 2.0 - quarter, 0.0, 0.0, 0.0], atol=1e-12
    )
    assert afire_training.cosine_schedule(0, 1, 0.5, 0.1) == 0.5
    assert afire_training.cosine_schedule(1, 5, 1.0, 0.0, warmup_steps=2, warmup_start=0.5) == 0.75


def test_profile_of_the_paper() -> None:
    total = 1001
    assert afire_training.teacher_momentum(0, total) == pytest.approx(0.99)
    assert afire_training.teacher_momentum(500, total) == pytest.approx(0.995)
    assert afire_training.teacher_momentum(1000, total) == 1.0
    assert afire_training.weight_decay(0, total) == pytest.approx(0.04)
    assert afire_training.weight_decay(1000, total) == pytest.approx(0.4)
    temperatures = [afire_training.teacher_temperature(e) for e in (0, 15, 30, 799)]
    np.testing.assert_allclose(temperatures, [0.04, 0.055, 0.07, 0.07])
    assert afire_training.scaled_learning_rate(512) == pytest.approx(1e-3)


def test_ema_update_by_hand() -> None:
    teacher = {"weight": np.array([1.0, 2.0]), "count": np.array(3)}
    student = {"weight": np.array([2.0, 0.0]), "count": np.array(8), "decoder": np.zeros(2)}
    updated = afire_training.ema_update(teacher, student, 0.9)
    assert sorted(updated) == ["count", "weight"]
    np.testing.assert_allclose(updated["weight"], [1.1, 1.8])
    assert updated["count"] == 8
    np.testing.assert_array_equal(teacher["weight"], [1.0, 2.0])


def test_adamw_first_step_by_hand_and_five_steps_as_torch() -> None:
    new, state = afire_training.adamw_step([1.0], [0.3], None, lr=0.1, weight_decay=0.5, eps=0.0)
    np.testing.assert_allclose(new, [1.0 - 0.05 - 0.1])  # the first step is lr · sign(gradient)
    assert state["step"] == 1

    rng = np.random.default_rng(0)
    param, grads = rng.normal(size=(2, 3)), rng.normal(size=(5, 2, 3))
    parameter = nn.Parameter(torch.tensor(param))
    optimizer = torch.optim.AdamW(
        [parameter], lr=0.02, weight_decay=0.3, betas=(0.8, 0.95), eps=1e-3
    )
    current = None
    for grad in grads:
        parameter.grad = torch.tensor(grad)
        optimizer.step()
        param, current = afire_training.adamw_step(
            param, grad, current, 0.02, 0.3, (0.8, 0.95), 1e-3
        )
    np.testing.assert_allclose(param, parameter.detach().numpy(), atol=1e-12)


def test_clip_grad_norm_by_hand_and_as_torch() -> None:
    grads = {"a": np.array([3.0]), "b": np.array([[0.0, 4.0]])}
    clipped, norm = afire_training.clip_grad_norm(grads, 10.0)
    assert norm == pytest.approx(5.0)
    np.testing.assert_array_equal(clipped["b"], grads["b"])
    clipped, _ = afire_training.clip_grad_norm(grads, 2.5)
    np.testing.assert_allclose(clipped["a"], [1.5], rtol=1e-6)
    parameters = [
        nn.Parameter(torch.zeros(1, dtype=torch.float64)),
        nn.Parameter(torch.zeros(1, 2).double()),
    ]
    for parameter, grad in zip(parameters, grads.values(), strict=True):
        parameter.grad = torch.tensor(grad)
    torch.nn.utils.clip_grad_norm_(parameters, 2.5)
    assert parameters[1].grad is not None
    np.testing.assert_allclose(clipped["b"], parameters[1].grad.numpy(), rtol=1e-12)


def tensors(seed: int, **sizes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, c, normal = random_case(seed, **sizes)
    return torch.tensor(q, requires_grad=True), torch.tensor(c), torch.tensor(normal)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_looped_losses_equal_the_references(seed: int, temperature: float) -> None:
    q, c, normal = tensors(seed)
    arrays = (q.detach().numpy(), c.numpy(), normal.numpy(), temperature)
    references = (
        (
            published_step.loop_structure_loss,
            afire.structure_consistency_loss(*arrays),
            afire_gradients.structure_consistency_gradient(*arrays),
        ),
        (
            published_step.loop_category_loss,
            afire.category_consistency_loss(*arrays),
            afire_gradients.category_consistency_gradient(*arrays),
        ),
    )
    for loss, value, gradient in references:
        result = loss(q, c, normal, temperature)
        (by_autograd,) = torch.autograd.grad(result, q)
        assert abs(result.item() - value) < 1e-9
        np.testing.assert_allclose(by_autograd.numpy(), gradient, atol=1e-9)
    total = published_step.loop_contrastive_loss(q, c, normal, temperature).item()
    assert abs(total - references[0][1] - references[1][1]) < 1e-9


@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("B", [1, 3])
def test_looped_losses_of_degenerate_batches(fill: bool, B: int) -> None:
    q, c, normal = tensors(4, B=B)
    result = published_step.loop_contrastive_loss(q, c, torch.full_like(normal, fill))
    (gradient,) = torch.autograd.grad(result, q)
    assert torch.isfinite(gradient).all()
    expected = afire.structure_consistency_loss(
        q.detach().numpy(), c.numpy(), np.full(normal.shape, fill)
    )
    assert abs(result.item() - expected) < 1e-9


def test_looped_last_layer_equals_the_reference() -> None:
    layer = published_step.LoopedLastLayer(num_tokens=6, in_dim=7, num_clusters=5).double()
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(6, 5, 7, generator=generator, dtype=torch.float64)
    hidden = torch.randn(4, 6, 7, generator=generator, dtype=torch.float64)
    layer.set_vectors(vectors)
    logits = layer(hidden)
    np.testing.assert_allclose(
        logits.detach().numpy(),
        afire.token_probability_head(hidden.numpy(), vectors.numpy()),
        atol=1e-12,
    )
    trainable = [p for p in layer.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trainable) == vectors.numel()  # the gains are fixed


def test_looped_ema_equals_the_reference() -> None:
    teacher, student = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    before = {name: value.detach().clone().numpy() for name, value in teacher.named_parameters()}
    expected = afire_training.ema_update(
        before, {name: value.detach().numpy() for name, value in student.named_parameters()}, 0.7
    )
    published_step.loop_ema_update(teacher, student, 0.7)
    for name, value in teacher.named_parameters():
        np.testing.assert_allclose(value.detach().numpy(), expected[name], atol=1e-12)
        assert value.requires_grad


def test_teacher_runs_once_per_variant_and_attention_is_softmax() -> None:
    calls = []

    def teacher(images: torch.Tensor) -> torch.Tensor:
        calls.append(images.shape)
        return 2.0 * images

    outputs = published_step.repeated_teacher_pass(teacher, torch.ones(2, 3), num_variants=4)
    assert len(calls) == 4
    assert outputs.shape == (2, 4, 3)

    generator = torch.Generator().manual_seed(1)
    query, key, value = torch.randn(3, 2, 5, 4, generator=generator, dtype=torch.float64)
    fused = nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(published_step.unfused_attention(query, key, value), fused)
