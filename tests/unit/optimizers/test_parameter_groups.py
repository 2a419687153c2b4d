# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which parameter gets which weight decay, and which learning rate by its layer."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from monai_afire.networks import AFiRe, SwinEncoder, TransferClassifier, UPerNet, ViTEncoder
from monai_afire.optimizers import layer_decay_groups, weight_decay_groups
from unit.tiny_networks import tiny_swin, tiny_vit


def vit() -> ViTEncoder:
    return tiny_vit(num_layers=3, hidden_size=8, pos_embed_type="learnable")


def swin() -> SwinEncoder:
    return tiny_swin(img_size=32, depths=(1, 2, 1), num_heads=(1, 1, 2))


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
        is_decayed = {id(parameter) in decayed for parameter in group["params"]}
        assert is_decayed == {group["weight_decay"] == 0.3}
    scales = [group["lr_scale"] for group in groups]
    assert scales == sorted(scales)


def test_encoders_alone_wrapped_and_with_a_teacher() -> None:
    encoder = vit()
    alone = by_name(encoder, layer_decay_groups(encoder, 0.1, layer_decay=0.5))
    wrapped = nn.Sequential(nn.Sequential(encoder), nn.Linear(8, 8))
    group_of = by_name(wrapped, layer_decay_groups(wrapped, 0.1, layer_decay=0.5))
    for name, group in alone.items():
        assert group["lr_scale"] == 0.5 ** naive_exponent(name, [3], prefix="")
        assert group_of[f"0.0.{name}"]["lr_scale"] == group["lr_scale"]
    assert group_of["1.weight"]["lr_scale"] == 1
    network = AFiRe(vit(), 4, 6, 8, 1, 2)
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


def test_matrices_decay_but_tokens_and_positions_do_not() -> None:
    network = AFiRe(vit(), 4, 6, 8, 1, 2)
    network.encoder.blocks[0].requires_grad_(False)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    decayed, exempt = weight_decay_groups(network, 0.3)
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.3, 0.0)
    both = [names[id(parameter)] for group in (decayed, exempt) for parameter in group["params"]]
    assert sorted(both) == sorted(name for name, p in network.named_parameters() if p.requires_grad)
    special = {"encoder.patch_embedding.position_embeddings", "decoder.mask_tokens"}
    matrices = {names[id(p)] for p in exempt["params"] if p.ndim > 1}
    assert matrices == special
    assert all(p.ndim > 1 for p in decayed["params"])
