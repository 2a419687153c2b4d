# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder against MONAI's ViT."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.networks.nets import ViT
from torch import nn

from monai_afire.networks import ViTEncoder
from monai_afire.networks.blocks.position_embedding import resize_position_embedding
from unit.tiny_networks import tiny_vit

CASES: list[dict[str, Any]] = [
    {},
    {"in_channels": 3, "img_size": (32, 48), "patch_size": (16, 8)},
    {"pos_embed_type": "learnable", "qkv_bias": False, "mlp_dim": 20},
    {"pos_embed_type": "none", "img_size": 16},
]


def options(case: dict[str, Any]) -> dict[str, Any]:
    sizes = {"in_channels": 1, "img_size": 32, "patch_size": 16, "hidden_size": 24}
    depth = {"num_layers": 2, "num_heads": 2}
    return sizes | depth | {"pos_embed_type": "sincos", "qkv_bias": True} | case


def monai_vit(case: dict[str, Any]) -> ViT:
    settings = options(case)
    sizes = {
        key: (v, v) if isinstance(v := settings[key], int) else v
        for key in ("img_size", "patch_size")
    }
    return ViT(**({"mlp_dim": 96, "spatial_dims": 2} | settings | sizes))


@pytest.mark.parametrize("case", CASES)
def test_weights_and_outputs_are_those_of_monai(case: dict[str, Any]) -> None:
    encoder, vit = ViTEncoder(**options(case)).eval(), monai_vit(case).eval()
    image = torch.rand(2, encoder.in_channels, *encoder.img_size)
    encoder.load_state_dict(vit.state_dict(), strict=True)
    expected = vit((image - encoder.mean) / encoder.std)[0]
    torch.testing.assert_close(encoder(image), expected, rtol=0, atol=1e-6)


def test_images_of_another_size_are_refused() -> None:
    encoder = ViTEncoder(**options({}))
    for run in (encoder, encoder.feature_maps):
        with pytest.raises(ValueError, match="images"):
            run(torch.zeros(2, 1, 32, 48))
    with pytest.raises(ValueError, match="patches"):
        ViTEncoder(**options({"img_size": 40}))


def test_eps_is_that_of_every_layer_norm() -> None:
    encoder = ViTEncoder(**options({"norm_eps": 0.5}))
    assert {layer.eps for layer in encoder.modules() if isinstance(layer, nn.LayerNorm)} == {0.5}


@pytest.mark.parametrize(
    ("num_layers", "expected"), [(1, [0, 0, 0, 0]), (3, [0, 1, 2, 2]), (5, [1, 2, 3, 4])]
)
def test_feature_maps(num_layers: int, expected: list[int]) -> None:
    case = CASES[1] | {"num_layers": num_layers}
    encoder, vit = ViTEncoder(**options(case)).double().eval(), monai_vit(case).double().eval()
    for parameter in (encoder.norm.weight, encoder.norm.bias):
        nn.init.normal_(parameter)
    vit.load_state_dict(encoder.state_dict())
    images = torch.rand(2, encoder.in_channels, *encoder.img_size, dtype=torch.float64)
    tokens, states = vit(encoder.normalize(images))
    *finer, last = encoder.feature_maps(images)
    for features, layer in zip(finer, expected, strict=False):
        wanted = (
            nn.functional.layer_norm(states[layer], (24,)) if layer + 1 < num_layers else tokens
        )
        torch.testing.assert_close(features, wanted.mT.unflatten(2, (2, 6)))
    torch.testing.assert_close(last, tokens.mT.unflatten(2, (2, 6)))
    assert encoder.feature_strides == ((16, 8),) * 4


def test_parameters_by_depth_are_all_but_those_of_the_last_norm() -> None:
    encoder = ViTEncoder(**options({"num_layers": 3, "pos_embed_type": "learnable"}))
    names = {parameter: name for name, parameter in encoder.named_parameters()}
    layers = [[names.pop(each) for each in layer] for layer in encoder.parameters_by_depth()]
    starts = ["patch_embedding.", *(f"blocks.{number}." for number in range(3))]
    for layer, start in zip(layers, starts, strict=True):
        assert all(name.startswith(start) for name in layer)
    assert set(names.values()) == {"norm.weight", "norm.bias"}


def test_another_size_has_interpolated_positions() -> None:
    """As an encoder that is built for that size and has the resized embedding."""
    torch.manual_seed(0)
    shape = {"patch_size": 4, "hidden_size": 12, "num_layers": 1, "num_heads": 2}
    encoder = ViTEncoder(img_size=16, pos_embed_type="learnable", **shape)
    small = ViTEncoder(img_size=8, pos_embed_type="learnable", **shape)
    state = encoder.state_dict()
    name = "patch_embedding.position_embeddings"
    small.load_state_dict({**state, name: resize_position_embedding(state[name], (4, 4), (2, 2))})
    crops = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(encoder.encode_any_size(crops), small(crops))
    encoder.encode_any_size(crops).square().sum().backward()
    assert encoder.patch_embedding.position_embeddings.grad.any(), (
        "learnable positions learn from crops"
    )
    images = torch.rand(2, 1, 16, 16)
    assert torch.equal(encoder.encode_any_size(images), encoder(images))
    with pytest.raises(ValueError, match="multiple"):
        encoder.encode_any_size(torch.rand(2, 1, 9, 9))


def test_recomputed_activations_give_the_same_gradients() -> None:
    plain, again = tiny_vit(), tiny_vit(use_checkpoint=True)
    again.load_state_dict(plain.state_dict())
    images = torch.rand(2, 1, 32, 32)
    for encoder in (plain, again):
        encoder(images).square().mean().backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
