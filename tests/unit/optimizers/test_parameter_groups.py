# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which parameter gets which weight decay, and which learning rate by its layer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from monai_afire.networks import AFiRe, SwinEncoder, TransferClassifier, UPerNet, ViTEncoder
from monai_afire.optimizers import layer_decay_groups, weight_decay_groups


def vit(num_layers: int = 3) -> ViTEncoder:
    return ViTEncoder(
        img_size=16,
        patch_size=8,
        hidden_size=8,
        num_layers=num_layers,
        num_heads=2,
        pos_embed_type="learnable",
    )


def swin() -> SwinEncoder:
    return SwinEncoder(
        img_size=32,
        patch_size=2,
        window_size=4,
        embed_dim=4,
        depths=(1, 2, 1),
        num_heads=(1, 1, 2),
    )


def naive_exponent(name: str, depths: list[int], prefix: str = "encoder.") -> int:
    """Blocks from here to the end, this one included, by the parameter's name alone; depths are those of the stages."""
    if not name.startswith(prefix):
        return 0
    parts = name.removeprefix(prefix).split(".")
    if parts[0] in ("patch_embedding", "patch_embed"):
        return sum(depths) + 1
    if parts[0] == "blocks":
        return sum(depths) - int(parts[1])
    if parts[0] == "layers":
        return sum(depths) - sum(depths[: int(parts[1])]) - int(parts[3])
    if parts[0] == "downsamples":
        return sum(depths) - sum(depths[: int(parts[1]) + 1]) + 1
    assert parts[0] == "norm"
    return 0


def by_name(network: nn.Module, groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    found = [(names[id(parameter)], group) for group in groups for parameter in group["params"]]
    assert len(found) == len(dict(found)), "a parameter is in two groups"
    return dict(found)


# ---- layers


@pytest.mark.parametrize(("build", "depths"), [(vit, [3]), (swin, [1, 2, 1])])
@pytest.mark.parametrize("kind", [TransferClassifier, UPerNet])
def test_rates_by_name(build: Any, depths: list[int], kind: Any) -> None:
    network = kind(build(), num_classes=2)
    groups = layer_decay_groups(network, 0.1, weight_decay=0.3, layer_decay=0.5)
    group_of = by_name(network, groups)
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert set(group_of) == trained
    for name, group in group_of.items():
        scale = 0.5 ** naive_exponent(name, depths)
        assert group["lr_scale"] == scale, name
        assert group["lr"] == pytest.approx(0.1 * scale), name
    decayed = {id(parameter) for parameter in weight_decay_groups(network)[0]["params"]}
    for group in groups:
        assert group["params"]
        assert {id(parameter) in decayed for parameter in group["params"]} == {
            group["weight_decay"] == 0.3
        }
        assert group["weight_decay"] in (0.0, 0.3)
    scales = [group["lr_scale"] for group in groups]
    assert scales == sorted(scales)
    assert set(scales) == {0.5**n for n in range(sum(depths) + 2)}
    assert len(groups) <= 2 * (sum(depths) + 2)


def test_steps_are_those_of_a_rate_per_parameter() -> None:
    """One step of AdamW moves a parameter by its rate (but for the decay), whatever the gradient."""
    network = TransferClassifier(vit(), num_classes=2)
    before = copy.deepcopy(dict(network.named_parameters()))
    optimizer = torch.optim.AdamW(
        layer_decay_groups(network, 0.1, weight_decay=0.0, layer_decay=0.5), eps=0
    )
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    for name, parameter in network.named_parameters():
        moved = (parameter - before[name]).abs().max().item()
        expected = 0.1 * 0.5 ** naive_exponent(name, [3]) if parameter.requires_grad else 0.0
        assert moved == pytest.approx(expected, rel=1e-4), name


def test_encoders_alone_wrapped_and_with_a_teacher() -> None:
    encoder = vit()
    alone = by_name(encoder, layer_decay_groups(encoder, 0.1, layer_decay=0.5))
    wrapped = nn.Sequential(nn.Sequential(encoder), nn.Linear(8, 8))
    group_of = by_name(wrapped, layer_decay_groups(wrapped, 0.1, layer_decay=0.5))
    for name, group in alone.items():
        assert group["lr_scale"] == 0.5 ** naive_exponent(name, [3], prefix="")
        assert group_of[f"0.0.{name}"]["lr_scale"] == group["lr_scale"]
    assert group_of["1.weight"]["lr_scale"] == 1
    network = AFiRe(
        vit(), num_clusters=4, head_dim=6, decoder_dim=8, decoder_layers=1, decoder_heads=2
    )
    pretraining = by_name(network, layer_decay_groups(network, 0.1, layer_decay=0.5))
    assert not any(name.startswith("teacher_") for name in pretraining)
    for name, group in pretraining.items():
        assert group["lr_scale"] == 0.5 ** naive_exponent(name, [3])


@pytest.mark.parametrize(
    ("network", "layer_decay", "named"),
    [(vit(), 0.0, "layer_decay"), (vit(), 1.01, "layer_decay"), (nn.Linear(2, 2), 0.75, "Linear")],
)
def test_what_has_no_layers_is_refused(network: nn.Module, layer_decay: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        layer_decay_groups(network, 0.1, layer_decay=layer_decay)


# ---- weight decay


def test_every_trained_parameter_is_in_one_group() -> None:
    encoder = ViTEncoder(
        img_size=16,
        patch_size=8,
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        pos_embed_type="learnable",
    )
    network = AFiRe(
        encoder, num_clusters=4, head_dim=6, decoder_dim=8, decoder_layers=1, decoder_heads=2
    )
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    decayed, exempt = weight_decay_groups(network, 0.3)
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.3, 0.0)
    both = [names[id(parameter)] for group in (decayed, exempt) for parameter in group["params"]]
    assert sorted(both) == sorted(name for name, p in network.named_parameters() if p.requires_grad)
    assert not any(name.startswith("teacher_") or "norm_cross_attn" in name for name in both)
    for parameter in decayed["params"]:
        assert parameter.ndim > 1
        assert names[id(parameter)].endswith("weight")
    special = {"encoder.patch_embedding.position_embeddings", "decoder.mask_tokens"}
    exempt_names = {names[id(parameter)] for parameter in exempt["params"]}
    assert special <= exempt_names
    assert all(p.ndim == 1 for p in exempt["params"] if names[id(p)] not in special)
    assert "head.last_layer.weight" not in exempt_names


def test_frozen_parameters_are_left_out() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    network[0].requires_grad_(False)
    decayed, exempt = weight_decay_groups(network)
    assert [tuple(p.shape) for p in decayed["params"]] == [(1, 3)]
    assert [tuple(p.shape) for p in exempt["params"]] == [(1,)]
    assert decayed["weight_decay"] == 0.04


def test_decay_acts_on_the_first_group_only() -> None:
    network = nn.Linear(2, 3)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    optimizer = torch.optim.AdamW(weight_decay_groups(network, 0.5), lr=0.1)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(network.weight.detach(), before[0] * 0.95)
    assert torch.equal(network.bias, before[1])
