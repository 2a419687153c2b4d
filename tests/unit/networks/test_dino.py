# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The DINO network: who sees what, the state after steps against loops, the teacher's balance, what collapses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from naive import dino
from torch import nn

from monai_afire.losses import DINOLoss
from monai_afire.metrics.dino import dino_metrics
from monai_afire.networks import DINO, SwinEncoder, ViTEncoder, sinkhorn_knopp

WIDTH, PROTOTYPES = 12, 6


def tiny_dino(dtype: torch.dtype = torch.float32, **changes: Any) -> DINO:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=16, patch_size=4, hidden_size=WIDTH, num_layers=1, num_heads=2)
    return DINO(encoder, PROTOTYPES, head_dim=8, bottleneck_dim=5, **changes).to(dtype)


def crops(
    seed: int = 0,
    images: int = 3,
    local: int = 2,
    dtype: torch.dtype = torch.float32,
) -> list:
    """Global and local crops."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((images, 2, 1, 16, 16), (images, local, 1, 8, 8))
    return [torch.rand(*shape, generator=generator).to(dtype) for shape in shapes]


@pytest.mark.parametrize(("images", "local"), [(1, 3), (3, 0)])
def test_outputs(images: int, local: int) -> None:
    network = tiny_dino()
    outputs = network(*crops(0, images, local))
    shapes = {name: tuple(value.shape) for name, value in outputs.items()}
    assert shapes == {
        "student": (images, 2 + local, PROTOTYPES),
        "teacher": (images, 2, PROTOTYPES),
    }
    for probabilities in (outputs["student"].exp(), outputs["teacher"]):
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(probabilities.shape[:2]))
    DINOLoss()(outputs).backward()
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    assert all(p.grad is not None for p in trained.values()), (
        "a parameter without gradient would stop DDP"
    )
    assert not any(name.startswith("teacher") for name in trained)
    evaluated = network.eval()(*crops(0, images, local))
    assert evaluated["teacher_tokens"].shape == (images, 2, 16, WIDTH)


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


def test_center_moves_in_training_only_and_is_saved() -> None:
    network = tiny_dino()
    network.eval()(*crops())
    assert not network.center.any()
    network.train()(*crops())
    assert network.center.any()
    restored = tiny_dino()
    restored.load_state_dict(network.state_dict())
    torch.testing.assert_close(
        restored.eval()(*crops())["teacher"], network.eval()(*crops())["teacher"]
    )


def test_images_alone_give_the_teachers_feature_map() -> None:
    network = tiny_dino()
    for parameter in network.teacher_encoder.parameters():
        parameter.data += 0.1
    image = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(
        network(image).flatten(2).transpose(1, 2),
        network.teacher_encoder(image),
        msg="tokens in row-major order",
    )
    assert not torch.allclose(network(image).flatten(2).transpose(1, 2), network.encoder(image))


@pytest.mark.parametrize("level", ["uniform", "one prototype"])
def test_a_collapsed_teacher_raises_the_alarm(level: str) -> None:
    network = tiny_dino().eval()
    healthy = dino_metrics(network(*crops(images=8)))
    for head in (network.head, network.teacher_head):  # the same embedding, whatever the image
        nn.init.zeros_(head.mlp.layers[-1].weight)
        nn.init.ones_(head.mlp.layers[-1].bias)
    if level == "uniform":
        network.center.copy_(network.teacher_head(torch.zeros(WIDTH)).detach())
    else:
        network.teacher_temperature = 1e-4
    collapsed = dino_metrics(network(*crops(images=8)))
    assert collapsed["teacher_information"] < 1e-4 < healthy["teacher_information"]
    assert collapsed["crop_accuracy"] == collapsed["chance"] == 1 / 8
    assert float(collapsed["teacher_entropy"]) == pytest.approx(
        1 if level == "uniform" else 0, abs=1e-3
    )


@pytest.mark.slow
def test_training_learns_to_recognize_images() -> None:
    """With a teacher that the center can follow; far above chance after 150 steps."""
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=16, patch_size=4, hidden_size=24, num_layers=2, num_heads=2)
    network = DINO(encoder, num_prototypes=32, head_dim=64, bottleneck_dim=16, teacher_decay=0.99)
    blocks = torch.rand(16, 1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    images = blocks.repeat_interleave(4, 3).repeat_interleave(4, 4).repeat(1, 2, 1, 1, 1)
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-3)
    for step in range(150):
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1, (step + 1) / 50)
        crop = images + 0.1 * torch.rand(
            images.shape, generator=torch.Generator().manual_seed(step)
        )
        optimizer.zero_grad()
        DINOLoss()(network(crop, crop[..., 4:12, 4:12])).backward()
        optimizer.step()
        network.update_teacher()
    metrics = dino_metrics(network.eval()(images, images[..., 4:12, 4:12]))
    assert metrics["crop_accuracy"] > 2 * metrics["chance"]
    assert metrics["teacher_information"] > 0.05


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"center_momentum": 1.0}, "center_momentum must be in"),
        ({"teacher_balance": "none"}, "must be one of"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny_dino(**changes)


def test_encoders_of_one_size_do_without_local_crops() -> None:
    encoder = SwinEncoder(
        img_size=64, embed_dim=4, depths=(1, 1), num_heads=(1, 1), window_size=4, patch_size=4
    )
    network = DINO(encoder, PROTOTYPES, head_dim=8, bottleneck_dim=5)
    images = torch.rand(2, 2, 1, 64, 64)
    assert network(images, torch.zeros(2, 0, 1, 32, 32))["student"].shape == (2, 2, PROTOTYPES)
    with pytest.raises(NotImplementedError, match="num_local 0"):
        network(images, torch.zeros(2, 1, 1, 32, 32))


def test_the_teacher_takes_the_running_statistics_of_the_head() -> None:
    network = tiny_dino(batch_norm=True)
    network(*crops())
    student, teacher = (head.mlp.layers[1] for head in (network.head, network.teacher_head))
    assert student.running_mean.abs().max() > 0
    assert teacher.running_mean.abs().max() == 0  # it is in evaluation mode
    network.update_teacher()
    torch.testing.assert_close(teacher.running_mean, student.running_mean)
    torch.testing.assert_close(teacher.running_var, student.running_var)
