# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The ACE network: who sees what, what is compared with what, and what is left out."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from naive import ace
from torch import nn

from monai_afire.losses import ACELoss
from monai_afire.metrics.ace import ace_metrics
from monai_afire.networks import ACE, RadiographEncoder, patchify
from monai_afire.transforms import GridCropPaird
from unit.tiny_networks import tiny_vit

B, CELLS, D = 3, 4, 8

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def tiny_ace(dtype: torch.dtype = torch.float32, **changes: Any) -> ACE:
    torch.manual_seed(0)
    return ACE(tiny_vit(img_size=16, patch_size=4, hidden_size=D), **changes).to(dtype)


def batch(seed: int = 0, images: int = B, dtype: torch.dtype = torch.float32) -> Batch:
    """Random crops, and aligned offsets that overlap."""
    generator = torch.Generator().manual_seed(seed)
    crops = torch.rand(2, images, 1, 16, 16, generator=generator).to(dtype)
    offset_2 = torch.randint(0, 5, (images, 2), generator=generator)
    shift = 2 * torch.randint(-1, 4, (images, 2), generator=generator)
    return crops[0], crops[1], offset_2 + shift, offset_2


def count_calls(*modules: nn.Module) -> list[list[torch.Tensor]]:
    """First argument of every call of each module."""
    inputs: list[list[torch.Tensor]] = [[] for _ in modules]
    for module, seen in zip(modules, inputs, strict=True):
        module.register_forward_pre_hook(lambda _, arguments, seen=seen: seen.append(arguments[0]))
    return inputs


def test_losses_and_gradients_equal_loops() -> None:
    """From the encoders' tokens on all is the naive version's; its gradients reach every parameter of the student."""
    network = tiny_ace(torch.float64, student_temperature=0.2, teacher_temperature=0.07)
    for parameter in network.parameters():  # a teacher that differs, and heads whose biases matter
        parameter.data += 0.1 * torch.randn_like(parameter)
    network.center += 0.1 * torch.randn_like(network.center)
    center = network.center.clone()
    image_1, image_2, *offsets = batch(images=1, dtype=torch.float64)
    crops = (CELLS, 2 * CELLS)
    student = [network.encoder(image) for image in (image_1, image_2)]
    teacher = [network.teacher_encoder(image).detach() for image in (image_1, image_2)]
    targets = ace.matching_targets(*offsets, crops)
    scale = network.logit_scale
    global_loss = ace.global_consistency_loss(
        student[0], teacher[1], student[1], teacher[0], *offsets, crops, 0.2, 0.07, center
    )
    composed, decomposed = network.composer(student[0]), network.decomposer(student[1])
    composition = ace.matching_loss(teacher[1], composed, targets[0], scale, 0.9, "row_sum")
    decomposition = ace.matching_loss(teacher[0], decomposed, targets[1], scale, 0.99, "row_sum")
    expected = ace.total_loss(global_loss, composition, decomposition)

    loss = ACELoss()
    value = loss(network(image_1, image_2, *offsets))
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-9)
    for name, term in (
        ("global", global_loss),
        ("composition", composition),
        ("decomposition", decomposition),
    ):
        torch.testing.assert_close(loss.terms[name], term.detach(), rtol=0, atol=1e-9)
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    gradients = [torch.autograd.grad(x, list(named.values())) for x in (value, expected)]
    for name, ours, naive in zip(named, *gradients, strict=True):
        torch.testing.assert_close(ours, naive, rtol=0, atol=1e-9, msg=name)
        assert naive.any(), name


def test_center_moves_after_it_was_used() -> None:
    network = tiny_ace(torch.float64, center_momentum=0.75)
    expected = torch.zeros(D, dtype=torch.float64)
    for seed in range(3):
        crops = batch(seed, dtype=torch.float64)
        listed = ace.overlap_patches(*crops[2:], (CELLS, 2 * CELLS))
        pooled = [
            ace.pool_overlap(network.teacher_encoder(image), [patches[n] for patches in listed])
            for n, image in enumerate(crops[:2])
        ]
        teacher = network(*crops)["global_teacher"]
        before = torch.stack([torch.softmax((y - expected) / 0.04, -1) for y in pooled], 1)
        torch.testing.assert_close(teacher, before, rtol=0, atol=1e-9)
        expected = ace.update_center(expected, pooled, 0.75)
        torch.testing.assert_close(network.center, expected, rtol=0, atol=1e-9)
    network.eval()
    network(*batch(9, dtype=torch.float64))
    torch.testing.assert_close(network.center, expected, rtol=0, atol=1e-9)
    assert "center" in network.state_dict()


OUTPUTS = {
    "compose": ["composition_logits"],
    "decompose": ["decomposition_logits"],
    "global_consistency": ["global_student", "global_teacher"],
}
STUDENT_SEES = {"compose": {1}, "decompose": {2}, "global_consistency": {1, 2}}
TEACHER_SEES = {"compose": {2}, "decompose": {1}, "global_consistency": {1, 2}}
HEADS = {"compose": "composer.", "decompose": "decomposer."}


@pytest.mark.parametrize(
    "on", [["compose"], ["decompose"], ["global_consistency"], ["compose", "global_consistency"]]
)
def test_switches_leave_work_out(on: list[str]) -> None:
    """What is off is neither computed nor trainable, and every parameter that is trainable gets a gradient."""
    changes: dict[str, Any] = {name: name in on for name in OUTPUTS}
    network = tiny_ace(**changes)
    calls = count_calls(
        network.encoder, network.teacher_encoder, network.composer, network.decomposer
    )
    crops = batch()
    outputs = network(*crops)
    assert list(outputs) == [
        "offset_1",
        "offset_2",
        *(name for switch in on for name in OUTPUTS[switch]),
    ]
    for seen, sees in zip(calls[:2], (STUDENT_SEES, TEACHER_SEES), strict=True):
        expected = sorted(set().union(*(sees[switch] for switch in on)))
        assert len(seen) == 1
        assert torch.equal(seen[0], torch.cat([crops[n - 1] for n in expected]))
    assert [len(seen) for seen in calls[2:]] == ["compose" in on, "decompose" in on]
    loss_names = {
        "compose": "composition",
        "decompose": "decomposition",
        "global_consistency": "global",
    }
    weights: dict[str, Any] = {
        f"{loss}_weight": float(switch in on) for switch, loss in loss_names.items()
    }
    ACELoss(**weights)(outputs).backward()
    for name, parameter in network.named_parameters():
        off = any(name.startswith(head) and switch not in on for switch, head in HEADS.items())
        if (
            name.startswith("teacher_")
            or off
            or (name == "logit_scale" and on == ["global_consistency"])
        ):
            assert not parameter.requires_grad, name
        elif parameter.requires_grad:
            assert parameter.grad is not None, name  # one without would stop distributed training
            assert torch.isfinite(parameter.grad).all()
    assert (network.center != 0).any() == ("global_consistency" in on)


def test_an_image_alone_gives_its_feature_map() -> None:
    network = tiny_ace()
    image = batch()[0]
    features = network(image)
    assert features.shape == (B, D, 4, 4)
    assert torch.equal(features[:, :, 1, 2], network.encoder(image)[:, 6])


def test_autocast_training_pass_is_finite_and_near() -> None:
    exact, loss = tiny_ace(), ACELoss()
    loss(exact(*batch()))
    expected = {name: term.item() for name, term in loss.terms.items()}
    network = tiny_ace()
    with torch.autocast("cpu", dtype=torch.float16):
        total = loss(network(*batch()))
    total.backward()
    found = {name: term.item() for name, term in loss.terms.items()}
    assert found == pytest.approx(expected, rel=0.05)
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)
    assert network.center.dtype == torch.float32


def test_nothing_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the meta device have no values: whatever looks at one fails."""
    # not made for this device
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    network = tiny_ace().to("meta")
    ACELoss()(network(*(x.to("meta") for x in batch()))).backward()


@pytest.mark.parametrize("shift", [(-6, -6), (0, 0), (40, 0)])
def test_degenerate_overlaps_are_finite(shift: tuple[int, int]) -> None:
    """One patch in common, the crop inside the other, nothing in common."""
    network, loss = tiny_ace(), ACELoss()
    image_1, image_2, _, offset_2 = batch(images=1)
    loss(network(image_1, image_2, offset_2 + torch.tensor(shift), offset_2)).backward()
    assert all(torch.isfinite(term) for term in loss.terms.values())
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("settings", "arguments", "named"),
    [
        ({}, {"offset_1": torch.ones(B, 2), "offset_2": torch.zeros(B, 2)}, "align"),
        ({}, {"offset_2": None}, "offset_2"),
        ({"encoder": tiny_vit(img_size=(16, 24))}, {}, "grid"),
        ({"center_momentum": 1.0}, {}, "center_momentum"),
    ],
)
def test_what_does_not_fit_is_refused(
    settings: dict[str, Any], arguments: dict[str, torch.Tensor | None], named: str
) -> None:
    given = dict(zip(("image_1", "image_2", "offset_1", "offset_2"), batch(), strict=True))
    encoder = tiny_vit(img_size=16, patch_size=4, hidden_size=D)
    with pytest.raises(ValueError, match=named):
        ACE(**{"encoder": encoder, **settings})(**(given | arguments))


class PlaceEncoder(RadiographEncoder):
    """Turns a patch of a coordinate image into points on two circles, one for each axis."""

    def __init__(self, side: int, patch: int, frequency: float) -> None:
        super().__init__(2, (side, side), (patch, patch), 4, 0.0, 1.0)
        self.frequency = frequency

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        place = patchify(images, self.patch_size).unflatten(-1, (2, -1)).mean(-1) * self.frequency
        return torch.cat([place.cos(), place.sin()], -1)


class MeanOfParts(nn.Module):
    def forward(self, parts: torch.Tensor) -> torch.Tensor:
        return parts.unflatten(-1, (4, -1)).mean(-2)


class PlacesOfParts(nn.Module):
    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        place = torch.atan2(tokens[..., 2:], tokens[..., :2])
        steps = torch.tensor([[y, x] for y in (-0.5, 0.5) for x in (-0.5, 0.5)])
        parts = place.unsqueeze(-2) + steps * self.frequency
        return torch.cat([parts.cos(), parts.sin()], -1).flatten(-2)


def test_a_perfect_encoder_matches_perfectly() -> None:
    """
    Crops of an image whose pixels name their place; an encoder that reads it and heads that move it by half a patch.

    Fails when crop, token order, parts or target disagree anywhere on which axis or which crop is which.
    """
    cells, grid = 6, 16
    network = ACE(PlaceEncoder(4 * cells, 4, 2 * math.pi / 40))
    network.composer.add_module("mlp", MeanOfParts())
    network.decomposer.add_module("mlp", PlacesOfParts(2 * math.pi / 40))
    axes = torch.meshgrid(*[(torch.arange(4.0 * grid) + 0.5) / 4] * 2, indexing="ij")  # in cells
    crop = GridCropPaird("image", grid, 4, (cells, 2 * cells), 4 * cells, jitter=False, align=2)
    crop.set_random_state(0)
    pairs = [crop({"image": torch.stack(axes)}) for _ in range(64)]
    keys = ("image_1", "image_2", "offset_1", "offset_2")
    outputs = network(
        *(torch.stack([torch.as_tensor(pair[key]) for pair in pairs]) for key in keys)
    )
    metrics = ace_metrics(outputs)
    assert metrics["composition_accuracy"] == metrics["decomposition_accuracy"] == 1
    means = outputs["global_teacher"].log() - outputs["global_teacher"].log().mean(-1, keepdim=True)
    # both crops' means over the overlap are of the same place (up to the resizing at the border)
    torch.testing.assert_close(means[:, 0], means[:, 1], rtol=0, atol=0.5)
    assert means.std(0).min() > 4
