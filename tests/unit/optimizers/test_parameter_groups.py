# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Parameter groups with and without weight decay."""

from __future__ import annotations

import torch
from torch import nn

from monai_afire.networks import AFiRe, ViTEncoder
from monai_afire.optimizers import weight_decay_groups


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
