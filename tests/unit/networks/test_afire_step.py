# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whole optimizer steps against steps assembled from the slow references."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from naive import afire, afire_gradients, afire_training

from monai_afire.handlers import GradientClipping, TeacherUpdate
from monai_afire.losses import AFiReLoss
from monai_afire.networks import AFiRe
from monai_afire.optimizers import weight_decay_groups
from unit.tiny_networks import tiny_vit

LR, DECAY, MAX_NORM, TEACHER_DECAY, MOMENTUM = 1e-3, 0.3, 0.5, 0.75, 0.5
STUDENT_TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.05
WEIGHTS = {"structure": 1.0, "category": 0.5, "restoration": 2.0}
State = dict[str, Any]


def tiny_network() -> AFiRe:
    torch.manual_seed(3)
    encoder = tiny_vit(img_size=8, patch_size=4, hidden_size=8, mlp_dim=12)
    rates = STUDENT_TEMPERATURE, TEACHER_TEMPERATURE, TEACHER_DECAY, MOMENTUM
    network = AFiRe(encoder, 5, 6, 8, 1, 2, *rates).double()
    for parameter in network.teacher_encoder.parameters():  # a teacher that is not the student
        parameter.data += 0.05 * torch.randn_like(parameter)
    return network


def batches(steps: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    rng = np.random.default_rng(4)
    result = []
    for _ in range(steps):
        image = rng.random((3, 1, 8, 8))
        mask = np.zeros((3, 2, 1, 8, 8))
        for i, n in np.ndindex(3, 2):
            row, column = rng.integers(0, 2, 2) * 4
            mask[i, n, 0, row : row + 4, column : column + 3] = 0.5
        lesion = np.clip(image[:, None] + mask, 0, 1)
        result.append((torch.tensor(image), torch.tensor(lesion), torch.tensor(mask)))
    return result


def package_steps(steps: int) -> tuple[AFiRe, list[dict[str, float]]]:
    network = tiny_network()
    loss_function = AFiReLoss(WEIGHTS["structure"], WEIGHTS["category"], WEIGHTS["restoration"])
    groups = weight_decay_groups(network, DECAY)
    optimizer = torch.optim.AdamW(groups, lr=LR)
    state = SimpleNamespace(iteration=0, epoch=1, epoch_length=steps)
    engine = SimpleNamespace(scaler=None, optimizer=optimizer, state=state)
    clip, update = GradientClipping(network.parameters(), MAX_NORM), TeacherUpdate(network)
    terms = []
    for batch in batches(steps):
        state.iteration += 1
        optimizer.zero_grad()
        loss_function(network(*batch)).backward()
        clip(engine)
        optimizer.step()
        update(engine)
        terms.append({name: value.item() for name, value in loss_function.terms.items()})
    return network, terms


def naive_forward(
    network: AFiRe, batch: tuple[torch.Tensor, ...], bank: np.ndarray | None
) -> tuple[dict[str, float], list[torch.Tensor], list[np.ndarray], np.ndarray]:
    """Losses, the tensors where the references' gradients enter, those gradients, and the new bank."""
    image, lesion_image, mask = batch
    B, N = lesion_image.shape[:2]
    abnormal = afire.patch_labels(mask.flatten(0, 1).numpy(), 4)
    with torch.no_grad():
        teacher = network.teacher_head(network.teacher_encoder(image))
    teacher_q = afire.sinkhorn_knopp(teacher.flatten(0, 1).numpy(), TEACHER_TEMPERATURE, 3)
    bank = afire.prototype_update(bank, teacher_q.reshape(teacher.shape), MOMENTUM)
    tokens = network.encoder(lesion_image.flatten(0, 1))
    logits = network.head(tokens)
    restored = network.decoder(tokens, torch.tensor(abnormal))
    q = afire.softmax(logits.detach().numpy(), STUDENT_TEMPERATURE)
    by_variant = (q.reshape(B, N, *q.shape[1:]), bank, ~abnormal.reshape(B, N, -1))
    pixels = (image - network.encoder.mean) / network.encoder.std  # constants, rounded to float32
    target = torch.stack(
        [pixels[:, 0, r : r + 4, c : c + 4].flatten(1) for r in (0, 4) for c in (0, 4)], 1
    ).repeat_interleave(N, 0)
    restoration = (restored.detach().numpy(), target.numpy(), abnormal)
    terms = {
        "structure": afire.structure_consistency_loss(q, bank, ~abnormal),
        "category": afire.category_consistency_loss_variants(*by_variant),
        "restoration": afire.anomaly_restoration_loss(*restoration),
    }
    by_q = WEIGHTS["structure"] * afire_gradients.structure_consistency_gradient(q, bank, ~abnormal)
    by_category = afire_gradients.category_consistency_gradient_variants(*by_variant)
    by_q += WEIGHTS["category"] * by_category.reshape(q.shape)
    gradients = [
        afire_gradients.softmax_gradient(q, by_q, STUDENT_TEMPERATURE),
        WEIGHTS["restoration"] * afire_gradients.anomaly_restoration_gradient(*restoration),
    ]
    return terms, [logits, restored], gradients, bank


def naive_steps(steps: int) -> tuple[AFiRe, list[dict[str, float]], np.ndarray]:
    network, bank, terms = tiny_network(), None, []
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    states: dict[str, State | None] = dict.fromkeys(trained)
    for batch in batches(steps):
        values, heads, gradients, bank = naive_forward(network, batch, bank)
        total = sum(weight * values[name] for name, weight in WEIGHTS.items())
        terms.append({"total": total, **values})
        by_parameter = torch.autograd.grad(
            heads, list(trained.values()), [torch.tensor(g) for g in gradients]
        )
        arrays = {name: g.numpy() for name, g in zip(trained, by_parameter, strict=True)}
        clipped, norm = afire_training.clip_grad_norm(arrays, MAX_NORM)
        assert norm > MAX_NORM  # the clipping acts
        for name, parameter in trained.items():
            decay = 0.0 if parameter.ndim == 1 or name == "decoder.mask_tokens" else DECAY
            new, states[name] = afire_training.adamw_step(
                parameter.detach().numpy(), clipped[name], states[name], LR, decay
            )
            parameter.data.copy_(torch.tensor(new))
        for part in ("encoder", "head"):
            student, teacher = (getattr(network, prefix + part) for prefix in ("", "teacher_"))
            before, towards = (
                {n: p.detach().numpy() for n, p in m.named_parameters()} for m in (teacher, student)
            )
            for name, value in afire_training.ema_update(before, towards, TEACHER_DECAY).items():
                teacher.get_parameter(name).data.copy_(torch.tensor(value))
    assert bank is not None
    return network, terms, bank


def test_optimizer_steps_equal_the_references() -> None:
    steps = 3
    network, terms = package_steps(steps)
    reference, expected_terms, bank = naive_steps(steps)
    for values, expected in zip(terms, expected_terms, strict=True):
        assert values == pytest.approx(expected, abs=1e-8)
    compared = dict(reference.named_parameters())
    for name, parameter in network.named_parameters():
        assert (parameter - compared[name]).abs().max() < 1e-9, name
    np.testing.assert_allclose(network.bank.prototypes.numpy(), bank, rtol=0, atol=1e-9)
