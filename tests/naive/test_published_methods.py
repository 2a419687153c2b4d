# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The slow way of each method computes what the package does: the benchmarks compare like with like."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from monai_afire.losses import ACELoss, AFiReLoss, PEACLoss
from monai_afire.networks import ACE, PEAC, AFiRe, ViTEncoder
from monai_afire.optimizers import weight_decay_groups

from .published_methods import LoopedLastLayer, loop_targets, matching_pairs, published

Batch = tuple[torch.Tensor, ...]


def encoder() -> ViTEncoder:
    return ViTEncoder(
        img_size=16, patch_size=4, hidden_size=8, mlp_dim=12, num_layers=2, num_heads=2
    )


def afire_case() -> tuple[nn.Module, nn.Module, Batch]:
    network = AFiRe(
        encoder(),
        5,
        head_dim=6,
        decoder_dim=8,
        decoder_layers=1,
        decoder_heads=2,
        teacher_decay=0.75,
    )
    image, masks = torch.rand(3, 1, 16, 16), torch.zeros(3, 2, 1, 16, 16)
    masks[0, 0, 0, :4, :7] = masks[1, 1, 0, 5:9, 5:9] = masks[2, 0, 0, 9:, :3] = 0.4
    batch = image, (image.unsqueeze(1) + masks).clamp(0, 1), masks
    return network, AFiReLoss(0.7, 0.5, 2.0, temperature=0.8, abnormal_weight=3.0), batch


def peac_case() -> tuple[nn.Module, nn.Module, Batch]:
    network = PEAC(encoder(), expander_dim=6, expander_hidden_dim=10, teacher_decay=0.75)
    image_1, image_2, distorted = torch.rand(3, 4, 1, 16, 16)
    order = torch.stack([torch.randperm(16) for _ in range(4)])
    shuffled = torch.tensor([True, False, False, True])
    offset_1, offset_2 = torch.randint(0, 3, (2, 4, 2))
    batch = image_1, image_2, distorted, order, shuffled, offset_1, offset_2
    return network, PEACLoss(0.7, 0.5, 2.0, 3.0), batch


def ace_case() -> tuple[nn.Module, nn.Module, Batch]:
    network = ACE(encoder(), head_dim=10, teacher_decay=0.75)
    offset_2 = torch.randint(0, 3, (4, 2))
    # the last do not overlap
    offset_1 = offset_2 + 2 * torch.tensor([[0, 1], [-1, 2], [3, 0], [5, 5]])
    return network, ACELoss(0.7, 0.5, 2.0), (*torch.rand(2, 4, 1, 16, 16), offset_1, offset_2)


CASES = {"afire": afire_case, "peac": peac_case, "ace": ace_case}


def stacked_last_layers(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by the package's names: a looped last layer as one weight (L,K,D)."""
    values = {
        name: value.detach()
        for name, value in (*module.named_parameters(), *module.named_buffers())
    }
    for name, layer in module.named_modules():
        if isinstance(layer, LoopedLastLayer):
            values = {key: value for key, value in values.items() if not key.startswith(f"{name}.")}
            values[f"{name}.weight"] = torch.stack([vector.detach() for vector in layer.vectors()])
    return values


@pytest.mark.parametrize("method", sorted(CASES))
@pytest.mark.parametrize("seed", [0, 1])
def test_steps_are_those_of_the_package(method: str, seed: int) -> None:
    torch.manual_seed(seed)
    network, loss, batch = CASES[method]()
    network, batch = (
        network.double(),
        tuple(x.double() if x.is_floating_point() else x for x in batch),
    )
    for name, parameter in network.named_parameters():  # a teacher that is not the student
        if name.startswith("teacher_"):
            parameter.data += 0.05 * torch.randn_like(parameter)
    start = {name: value.clone() for name, value in stacked_last_layers(network).items()}
    slow = published(copy.deepcopy(network), loss)
    own_optimizer = torch.optim.AdamW(weight_decay_groups(network, 0.3), lr=1e-3)
    slow_optimizer = torch.optim.AdamW(weight_decay_groups(slow.network, 0.3), lr=1e-3)
    for _ in range(2):
        own, naive = loss(network(*batch)), slow.loss(slow(*batch))
        torch.testing.assert_close(naive, own, rtol=1e-6, atol=1e-9)
        for value, optimizer, teacher in (
            (own, own_optimizer, network),
            (naive, slow_optimizer, slow),
        ):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            teacher.update_teacher()
    expected, found = stacked_last_layers(network), stacked_last_layers(slow.network)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=0, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}"
        )
    moved = [name for name in expected if not torch.equal(expected[name], start[name])]
    assert len(moved) > 0.8 * len([name for name in expected if "norm_cross" not in name])


def test_matching_by_hand() -> None:
    assert matching_pairs([1, 0], [0, 1], side=2) == [(1, 2)]
    assert matching_pairs([0, 0], [2, 0], side=2) == []
    composition, decomposition = loop_targets(
        torch.tensor([[2, 0]]), torch.tensor([[0, 0]]), (2, 4)
    )
    near, far = torch.tensor(-0.5).exp(), torch.tensor(-1.0).exp()
    torch.testing.assert_close(composition, torch.tensor([[[near, far, 1.0, near]]]))
    assert decomposition.shape == (1, 4, 16)
    assert decomposition[0, 0].argmax() == 8
