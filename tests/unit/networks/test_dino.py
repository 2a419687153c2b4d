# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The DINO network: who sees what, the state after steps against loops, the teacher's balance."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from naive import dino
from torch import nn

from monai_afire.losses import DINOLoss
from monai_afire.networks import DINO, ViTEncoder, sinkhorn_knopp
from unit.tiny_networks import tiny_swin, tiny_vit

WIDTH, PROTOTYPES = 12, 6


def tiny_dino(dtype: torch.dtype = torch.float32, **changes: Any) -> DINO:
    torch.manual_seed(0)
    encoder = tiny_vit(img_size=16, patch_size=4, hidden_size=WIDTH)
    return DINO(encoder, PROTOTYPES, head_dim=8, bottleneck_dim=5, **changes).to(dtype)


def crops(
    seed: int = 0, images: int = 3, local: int = 2, dtype: torch.dtype = torch.float32
) -> list:
    """Global and local crops."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((images, 2, 1, 16, 16), (images, local, 1, 8, 8))
    return [torch.rand(*shape, generator=generator).to(dtype) for shape in shapes]


def test_every_parameter_of_the_student_is_trained() -> None:
    network = tiny_dino()
    DINOLoss()(network(*crops(images=1, local=0))).backward()
    for name, parameter in network.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert not (name.startswith("teacher") and parameter.requires_grad)


@pytest.mark.parametrize("norm_last_layer", [True, False])
def test_two_steps_equal_loops(norm_last_layer: bool) -> None:
    """Loss, center, student and teacher after two steps, from the encoders' tokens on all by loops."""
    network = tiny_dino(
        dtype=torch.float64,
        norm_last_layer=norm_last_layer,
        teacher_decay=0.75,
        center_momentum=0.6,
    )
    network.teacher_temperature = 0.3
    for parameter in network.parameters():  # a teacher that differs, and biases that matter
        if parameter.shape[-1:] != (1,):  # but not the gains, which must be 1
            parameter.data += 0.1 * torch.randn_like(parameter)
    naive = copy.deepcopy(network)
    optimizers = [
        torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
        for net in (network, naive)
    ]
    for step in range(2):
        images, local = crops(step, dtype=torch.float64)
        loss = DINOLoss()(network(images, local))
        expected = _naive_loss(naive, images, local)
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=0)
        for optimizer, value in zip(optimizers, (loss, expected), strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        network.update_teacher()
        for part in ("encoder", "head"):
            student, teacher = getattr(naive, part), getattr(naive, f"teacher_{part}")
            teacher.load_state_dict(dino.ema(teacher.state_dict(), student.state_dict(), 0.75))
    assert network.center.any()
    for name, value in naive.state_dict().items():
        torch.testing.assert_close(
            network.state_dict()[name], value, rtol=1e-8, atol=1e-10, msg=name
        )
    gains = network.head.last_layer.parametrizations.weight.original0
    assert bool((gains == 1).all()) == norm_last_layer


def _naive_loss(network: DINO, images: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Of a batch, crop by crop; moves the center."""

    def scores(encoder: ViTEncoder, head: nn.Module, crop: torch.Tensor) -> torch.Tensor:
        tokens = encoder.encode_any_size(crop.unsqueeze(0))[0]
        return dino.head_scores(dict(head.named_parameters()), sum(tokens) / len(tokens))

    student, teacher = [], []
    for of_image, small in zip(images, local, strict=True):
        student.append(
            torch.stack([scores(network.encoder, network.head, c) for c in (*of_image, *small)])
        )
        teacher.append(
            torch.stack(
                [scores(network.teacher_encoder, network.teacher_head, c) for c in of_image]
            )
        )
    seen = torch.stack(teacher).detach()
    loss = dino.dino_loss(
        torch.stack(student), seen, network.center, 0.1, network.teacher_temperature
    )
    network.center.copy_(dino.moved_center(network.center, seen, network.center_momentum))
    return loss


def test_sinkhorn_balances_both_crops_together_and_moves_no_center() -> None:
    network = tiny_dino(teacher_balance="sinkhorn")
    images, local = crops()
    teacher = network(images, local)["teacher"]
    tokens = network.teacher_encoder(images.flatten(0, 1))
    expected = sinkhorn_knopp(network.teacher_head(tokens.mean(1)), network.teacher_temperature)
    torch.testing.assert_close(teacher.flatten(0, 1), expected)
    torch.testing.assert_close(
        teacher.sum((0, 1)), torch.full((PROTOTYPES,), 6 / PROTOTYPES), rtol=0.2, atol=0
    )
    assert not network.center.any()


def test_center_moves_in_training_only() -> None:
    network = tiny_dino()
    network.eval()(*crops())
    assert not network.center.any()
    network.train()(*crops())
    assert network.center.any()


def test_images_alone_give_the_teachers_feature_map() -> None:
    network = tiny_dino()
    for parameter in network.teacher_encoder.parameters():
        parameter.data += 0.1
    image = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(network(image).flatten(2).mT, network.teacher_encoder(image))


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"center_momentum": 1.0}, "center_momentum"), ({"teacher_balance": "none"}, "balance")],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        tiny_dino(**changes)


def test_encoders_of_one_size_do_without_local_crops() -> None:
    network = DINO(tiny_swin(), PROTOTYPES, head_dim=8, bottleneck_dim=5)
    images = torch.rand(2, 2, 1, 16, 16)
    assert network(images, torch.zeros(2, 0, 1, 8, 8))["student"].shape == (2, 2, PROTOTYPES)
    with pytest.raises(NotImplementedError, match="num_local"):
        network(images, torch.zeros(2, 1, 1, 8, 8))


def test_the_teacher_takes_the_running_statistics_of_the_head() -> None:
    network = tiny_dino(batch_norm=True)
    network(*crops())
    student, teacher = (head.mlp.layers[1] for head in (network.head, network.teacher_head))
    assert student.running_mean.abs().max() > 0
    assert teacher.running_mean.abs().max() == 0  # it is in evaluation mode
    network.update_teacher()
    torch.testing.assert_close(teacher.running_mean, student.running_mean)
    torch.testing.assert_close(teacher.running_var, student.running_var)
