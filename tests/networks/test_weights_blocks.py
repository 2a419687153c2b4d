# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoints whose names are known in part: what would leave blocks at random values is refused."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.weight_loading import load_encoder_weights

State = dict[str, torch.Tensor]


def vit(seed: int, num_layers: int = 2) -> ViTEncoder:
    torch.manual_seed(seed)
    return ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=num_layers, num_heads=2)


def swin(seed: int) -> SwinEncoder:
    torch.manual_seed(seed)
    return SwinEncoder(
        img_size=64, patch_size=4, embed_dim=12, depths=(1, 1), num_heads=(2, 2), window_size=4
    )


def timm_names(encoder: nn.Module) -> State:
    names = {
        "patch_embedding.patch_embeddings": "patch_embed.proj",
        "patch_embedding.position_embeddings": "pos_embed",
        "attn.out_proj": "attn.proj",
        "mlp.linear": "mlp.fc",
    }
    state = {}
    for key, tensor in encoder.state_dict().items():
        if "cross" not in key:
            for ours, theirs in names.items():
                key = key.replace(ours, theirs)
            state[key] = tensor
    return state


def eva_names(state: State) -> State:
    """As EVA-02 and EVA-X write them: a projection for each of query, key and value, and a gated perceptron."""
    result: State = {}
    for key, tensor in state.items():
        if "attn.qkv.weight" in key:
            for part, chunk in zip("qkv", tensor.chunk(3), strict=True):
                result[key.replace("qkv", f"{part}_proj")] = chunk
        elif "attn.qkv.bias" in key:
            result |= {key.replace("qkv.bias", f"{part}_bias"): tensor[:24] for part in "qv"}
        else:
            result[key.replace("mlp.fc1", "mlp.w1").replace("mlp.fc2", "mlp.w3")] = tensor
    return result


def same(first: nn.Module, second: nn.Module) -> bool:
    other = second.state_dict()
    return all(torch.equal(tensor, other[name]) for name, tensor in first.state_dict().items())


def test_a_file_of_eva_x_is_sent_to_its_own_encoder_and_nothing_changes() -> None:
    encoder = vit(1)
    words = r"lacks 12 of the \d+ tensors .*blocks\.0\.mlp\.linear1.*of EVA-X with --encoder timm:eva_x.*blocks\.0\."
    with pytest.raises(ValueError, match=words):
        load_encoder_weights(encoder, eva_names(timm_names(vit(0))))
    assert same(encoder, vit(1))


@pytest.mark.parametrize("layer", ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"])
def test_one_renamed_layer_is_enough(layer: str) -> None:
    state = {
        re.sub(rf"blocks\.1\.{layer}\.", "blocks.1.other.", key): v
        for key, v in timm_names(vit(0)).items()
    }
    with pytest.raises(ValueError, match=r"lacks 2 of the \d+ tensors .*blocks\.1\.other\.weight"):
        load_encoder_weights(vit(1), state)


def test_blocks_of_a_swin_are_checked_too() -> None:
    state = {
        key.replace("layers.1.blocks.0.mlp", "layers.1.blocks.0.ffn"): v
        for key, v in swin(0).state_dict().items()
    }
    with pytest.raises(ValueError, match=r"lacks 4 of the \d+ tensors .*layers\.1\.blocks\.0\.mlp"):
        load_encoder_weights(swin(1), state)


def test_a_deeper_encoder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"blocks\.2\..*fewer blocks"):
        load_encoder_weights(vit(1, num_layers=3), timm_names(vit(0)))


def test_a_missing_norm_is_reported_only() -> None:
    state = {
        key: tensor for key, tensor in timm_names(vit(0)).items() if not key.startswith("norm.")
    }
    assert load_encoder_weights(vit(1), state).missing == ["norm.weight", "norm.bias"]
