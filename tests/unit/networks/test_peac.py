# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The PEAC network: who sees what, which patches are compared, what is left out."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import list_data_collate
from monai.transforms import Compose, CopyItemsd
from torch import nn

from monai_afire.losses import PEACLoss
from monai_afire.networks import PEAC, patchify
from monai_afire.transforms import GridCropPaird, RandPatchShuffled, matching_patches
from unit.tiny_networks import tiny_swin, tiny_vit

PARTS = ("classify_order", "restore", "global_consistency", "local_consistency")
KEYS = ("image_2", "distorted", "distorted_order", "shuffled", "offset_1", "offset_2")
PATCH, CELLS, GRID = 8, 3, 6

Batch = tuple[torch.Tensor, ...]


def tiny_peac(**changes: Any) -> PEAC:
    torch.manual_seed(0)
    return PEAC(tiny_vit(img_size=PATCH * CELLS), 6, 10, **changes)


def batch(seed: int = 0, images: int = 3, prob: float = 0.5, **changes: Any) -> Batch:
    """The arguments of the network from the transforms; each image is random, (1, H, W)."""
    transform = Compose(
        [
            GridCropPaird("image", GRID, PATCH, (CELLS, CELLS)),
            CopyItemsd("image_1", names="distorted"),
            RandPatchShuffled("distorted", PATCH, prob),
        ]
    ).set_random_state(seed)
    rng = np.random.default_rng(seed)
    size = [GRID * PATCH] * 2
    rows = [
        transform({"image": rng.random((1, *size), dtype=np.float32)} | changes)
        for _ in range(images)
    ]
    collated = list_data_collate(rows)
    return tuple(torch.as_tensor(collated[key]) for key in ("image_1", *KEYS))


def record_inputs(*modules: nn.Module) -> list[list[torch.Tensor]]:
    """First argument of every call of each module."""
    inputs: list[list[torch.Tensor]] = [[] for _ in modules]
    for module, seen in zip(modules, inputs, strict=True):
        module.register_forward_pre_hook(
            lambda _, arguments, seen=seen: seen.append(arguments[0].detach().clone())
        )
    return inputs


def test_outputs_are_what_each_part_says_of_each_crop() -> None:
    network, arguments = tiny_peac().eval(), batch()
    with torch.no_grad():  # a teacher that differs from its student
        for parameter in network.teacher_encoder.parameters():
            parameter.mul_(1.1)
    image_1, image_2, distorted, order, shuffled, offset_1, offset_2 = arguments
    outputs = network(*arguments)
    sides = {
        "": (network.encoder, network.global_expander, network.local_expander),
        "teacher_": (
            network.teacher_encoder,
            network.teacher_global_expander,
            network.teacher_local_expander,
        ),
    }
    crops = {"": (distorted, image_2), "teacher_": (image_1, image_2)}
    expected = {"order": order, "shuffled": shuffled}
    for prefix, (encoder, global_expander, local_expander) in sides.items():
        for crop, image in enumerate(crops[prefix], start=1):
            expected[f"{prefix}global_{crop}"] = global_expander(encoder(image).mean(1))
            expected[f"{prefix}local_{crop}"] = local_expander(encoder(image))
    tokens = network.encoder(distorted)
    expected |= {
        "order_logits": network.order_head(tokens),
        "restored": network.restoration_head(tokens),
    }
    for name, image in (("target", image_1), ("corrupted", distorted)):
        expected[name] = (patchify(image, PATCH) - 0.449) / 0.226
    expected["matches_1"] = matching_patches(offset_1, offset_2, (CELLS, CELLS))
    expected["matches_2"] = matching_patches(offset_2, offset_1, (CELLS, CELLS))
    assert set(outputs) == set(expected)
    assert set(expected) - set(network.train()(*arguments)) == {"corrupted"}
    for name, value in expected.items():
        torch.testing.assert_close(outputs[name], value, rtol=0, atol=1e-5, msg=name)


def test_restores_an_image_alone() -> None:
    network, (image, *_) = tiny_peac(), batch()
    before = image.clone()
    restored = network(image)
    assert restored.shape == image.shape
    assert 0 <= restored.min() <= restored.max() <= 1
    assert torch.equal(image, before)
    patches = network.restoration_head(network.encoder(image))
    torch.testing.assert_close(
        patchify(restored, PATCH), (patches * 0.226 + 0.449).clamp(0, 1), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    "parts", [(False,) * 4, (True,) * 4, *([n == m for n in range(4)] for m in range(4))]
)
def test_parts_that_are_off_cost_nothing_and_the_others_train(parts: tuple[bool, ...]) -> None:
    network, arguments = tiny_peac(**dict(zip(PARTS, parts, strict=True))), batch()
    modules = {
        "classify_order": network.order_head,
        "restore": network.restoration_head,
        "global_consistency": network.global_expander,
        "local_consistency": network.local_expander,
    }
    counts = record_inputs(*modules.values(), network.teacher_encoder)
    outputs = network(*arguments)
    assert [len(calls) for calls in counts] == [*parts, any(parts[2:])]
    if not any(parts):
        assert sorted(outputs) == ["order", "shuffled"]
        return
    order, restoration, global_weight, local = map(float, parts)
    PEACLoss(order, restoration, global_weight, local)(outputs).backward()
    for name, parameter in network.named_parameters():  # what DistributedDataParallel asks for
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert not (name.startswith("teacher") and parameter.requires_grad)
    assert {
        name: any(p.requires_grad for p in module.parameters()) for name, module in modules.items()
    } == dict(zip(PARTS, parts, strict=True))
    assert network.state_dict().keys() == tiny_peac().state_dict().keys()


def test_teacher_follows_the_student() -> None:
    network = tiny_peac(teacher_decay=0.75)
    names = ("encoder", "global_expander", "local_expander")
    for name in names:
        for parameter in getattr(network, name).parameters():
            parameter.data += torch.randn_like(parameter)
    before = copy.deepcopy(network)
    network.update_teacher()
    for name in names:
        start, student = getattr(before, f"teacher_{name}"), getattr(before, name)
        end = getattr(network, f"teacher_{name}")
        for first, second, found in zip(
            *(x.parameters() for x in (start, student, end)), strict=True
        ):
            torch.testing.assert_close(found.data, 0.75 * first.data + 0.25 * second.data)


def test_a_teacher_has_no_stochastic_depth() -> None:
    encoder = tiny_swin(img_size=24, patch_size=4, window_size=3, drop_path_rate=0.5)
    network, arguments = PEAC(encoder, 6, 10), batch(images=8, prob=0.0)
    first, second = (network(*arguments) for _ in range(2))
    assert torch.equal(first["teacher_local_1"], second["teacher_local_1"])
    assert not torch.equal(first["local_1"], second["local_1"])


@pytest.mark.parametrize("prob", [0.0, 1.0])
@pytest.mark.parametrize("autocast", [False, True])
def test_degenerate_batches_have_finite_losses_and_gradients(prob: float, autocast: bool) -> None:
    network, images = tiny_peac(), 1
    image_1, image_2, distorted, order, shuffled, _, _ = batch(0, images, prob=prob)
    assert shuffled.all() == (prob == 1)
    for shift in (0, CELLS - 1, CELLS):  # the whole crop, one cell, nothing in common
        network.zero_grad()
        offsets = torch.full((images, 2), shift), torch.zeros(images, 2, dtype=torch.int64)
        loss = PEACLoss()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            total = loss(network(image_1, image_2, distorted, order, shuffled, *offsets))
        total.backward()
        assert all(term.isfinite() and term.dtype == torch.float32 for term in loss.terms.values())
        assert all(
            p.grad is not None and p.grad.isfinite().all()
            for p in network.parameters()
            if p.requires_grad
        )


def test_center_is_taken_from_the_teacher_and_then_moves() -> None:
    network, plain = (
        tiny_peac(center_momentum=0.75).double(),
        tiny_peac(global_balance="none").double(),
    )
    center = torch.zeros(6, dtype=torch.float64)
    for seed in range(3):
        arguments = tuple(x.double() if x.is_floating_point() else x for x in batch(seed))
        outputs, raw = network(*arguments), plain(*arguments)
        embeddings = [raw[f"teacher_global_{crop}"] for crop in (1, 2)]
        for crop, embedding in enumerate(embeddings, start=1):
            torch.testing.assert_close(
                outputs[f"teacher_global_{crop}"], embedding - center, rtol=0, atol=1e-12
            )
            torch.testing.assert_close(
                outputs[f"global_{crop}"], raw[f"global_{crop}"], rtol=0, atol=1e-12
            )
        center = 0.75 * center + 0.25 * torch.stack([y for part in embeddings for y in part]).mean(
            0
        )
        torch.testing.assert_close(network.global_center, center, rtol=0, atol=1e-12)
    network.eval()(*arguments)
    torch.testing.assert_close(network.global_center, center, rtol=0, atol=1e-12)
    assert "global_center" in network.state_dict()
    assert not plain.global_center.any()


@pytest.mark.parametrize(
    ("settings", "given", "named"),
    [
        ({}, 3, "offset_1"),
        ({"encoder": tiny_vit(img_size=(16, 24))}, 7, "local_consistency"),
        ({"global_balance": "sinkhorn"}, 7, "global_balance"),
        ({"center_momentum": 1.0}, 7, "center_momentum"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], given: int, named: str) -> None:
    encoder = tiny_vit(img_size=PATCH * CELLS)
    with pytest.raises(ValueError, match=named):
        PEAC(**{"encoder": encoder, **settings})(*batch()[:given])
