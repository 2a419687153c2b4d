# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Layer-wise learning rates: which parameter gets which."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier
from monai_afire.networks.nets.uper_net import UPerNet
from monai_afire.optimizers.parameter_groups import layer_decay_groups, weight_decay_groups


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


def test_frozen_parameters_are_left_out() -> None:
    probe = TransferClassifier(vit(), num_classes=2, freeze_encoder=True)
    groups = layer_decay_groups(probe, 0.1, weight_decay=0.3)
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.1, 0.3), (0.1, 0.0)]
    assert [p for group in groups for p in group["params"]] == list(probe.classifier.parameters())
    network = TransferClassifier(vit(), num_classes=2)
    network.encoder.get_submodule("blocks.0").requires_grad_(False)
    names = set(by_name(network, layer_decay_groups(network, 0.1)))
    assert names == {
        name for name, parameter in network.named_parameters() if parameter.requires_grad
    }
    assert not any(name.startswith("encoder.blocks.0.") for name in names)


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


@pytest.mark.parametrize("layer_decay", [0.0, -0.5, 1.01, float("nan")])
def test_impossible_decays_are_refused(layer_decay: float) -> None:
    with pytest.raises(ValueError, match="layer_decay"):
        layer_decay_groups(vit(), 0.1, layer_decay=layer_decay)


def test_networks_without_an_encoder_are_refused() -> None:
    with pytest.raises(ValueError, match="Linear"):
        layer_decay_groups(nn.Linear(2, 2), 0.1)
    with pytest.raises(NotImplementedError, match="lacks parameters_by_depth"):
        layer_decay_groups(RadiographEncoder(), 0.1)
