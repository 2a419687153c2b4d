# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder against MONAI's ViT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from monai.networks.nets import ViT
from torch import nn

from monai_afire.networks.blocks.position_embedding import resize_position_embedding
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder

CASES: list[dict[str, Any]] = [
    {},
    {"in_channels": 3, "img_size": (32, 48), "patch_size": (16, 8)},
    {"pos_embed_type": "learnable", "qkv_bias": False, "mlp_dim": 20},
    {"pos_embed_type": "none", "img_size": 16},
]


def options(case: dict[str, Any]) -> dict[str, Any]:
    default = {
        "in_channels": 1,
        "img_size": 32,
        "patch_size": 16,
        "hidden_size": 24,
        "num_layers": 2,
        "num_heads": 2,
    }
    return default | {"pos_embed_type": "sincos", "qkv_bias": True} | case


def monai_vit(case: dict[str, Any]) -> ViT:
    settings = options(case)
    sizes = {
        key: (v, v) if isinstance(v := settings[key], int) else v
        for key in ("img_size", "patch_size")
    }
    return ViT(**({"mlp_dim": 96, "spatial_dims": 2} | settings | sizes))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_and_outputs_are_those_of_monai(case: dict[str, Any], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    encoder, vit = ViTEncoder(**options(case)).to(dtype).eval(), monai_vit(case).to(dtype).eval()
    assert list(encoder.state_dict()) == list(vit.state_dict())
    image = torch.rand(2, encoder.in_channels, *encoder.img_size, dtype=dtype)
    normalized = (image - encoder.mean) / encoder.std
    vit.load_state_dict(encoder.state_dict(), strict=True)
    torch.testing.assert_close(encoder(image), vit(normalized)[0], rtol=0, atol=1e-6)
    fresh = monai_vit(case).to(dtype).eval()
    encoder.load_state_dict(fresh.state_dict(), strict=True)
    tokens = encoder(image)
    torch.testing.assert_close(tokens, fresh(normalized)[0], rtol=0, atol=1e-6)
    assert tokens.shape == (2, encoder.grid_size[0] * encoder.grid_size[1], 24)


def test_gradients_are_those_of_monai() -> None:
    torch.manual_seed(1)
    encoder, vit = ViTEncoder(**options({})).double(), monai_vit({}).double()
    vit.load_state_dict(encoder.state_dict())
    image = torch.rand(2, 1, 32, 32, dtype=torch.float64)
    weights = torch.randn(2, 4, 24, dtype=torch.float64)
    (encoder(image) * weights).sum().backward()
    (vit(encoder.normalize(image))[0] * weights).sum().backward()
    reference = dict(vit.named_parameters())
    for name, parameter in encoder.named_parameters():
        if parameter.requires_grad:
            # a parameter without gradient stops distributed training
            assert parameter.grad is not None, name
            torch.testing.assert_close(parameter.grad, reference[name].grad, rtol=0, atol=1e-10)
        else:
            assert parameter.grad is None


def test_default_is_vit_b_16() -> None:
    with torch.device("meta"):
        encoder = ViTEncoder()
    assert (encoder.hidden_size, encoder.grid_size, len(encoder.blocks)) == (768, (14, 14), 12)
    # the usual 85,798,656 of ViT-B/16 less two of three color channels, the class token and its position
    expected = 85_798_656 - 2 * 16 * 16 * 768 - 768 - 768
    assert (
        sum(p.numel() for name, p in encoder.named_parameters() if "norm_cross" not in name)
        == expected
    )


def test_images_of_another_size_are_refused() -> None:
    encoder = ViTEncoder(**options({}))
    for shape in ((2, 1, 32, 48), (2, 3, 32, 32), (2, 1, 32)):
        for run in (encoder, encoder.feature_maps):
            with pytest.raises(ValueError, match=r"\(B, 1, 32, 32\), got"):
                run(torch.zeros(shape))
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        ViTEncoder(**options({"img_size": 40}))


def test_eps_is_that_of_every_layer_norm() -> None:
    encoder = ViTEncoder(**options({"norm_eps": 0.5})).eval()
    assert {layer.eps for layer in encoder.modules() if isinstance(layer, nn.LayerNorm)} == {0.5}
    vit = monai_vit({}).eval()
    for layer in vit.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.eps = 0.5
    vit.load_state_dict(encoder.state_dict())
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(
        encoder(images), vit(encoder.normalize(images))[0], rtol=0, atol=1e-6
    )
    assert {
        layer.eps
        for layer in ViTEncoder(**options({})).modules()
        if isinstance(layer, nn.LayerNorm)
    } == {1e-5}


def naive_feature_map(
    encoder: ViTEncoder, vit: ViT, images: torch.Tensor, layer: int
) -> torch.Tensor:
    """By MONAI's hidden states, one token at a time."""
    tokens, states = vit(encoder.normalize(images))
    result = torch.empty(len(images), encoder.hidden_size, *encoder.grid_size, dtype=images.dtype)
    for place in range(tokens.shape[1]):
        spot = np.unravel_index(place, encoder.grid_size)
        vector = states[layer][:, place]
        vector = (vector - vector.mean(1, keepdim=True)) / (
            vector.var(1, correction=0, keepdim=True) + 1e-5
        ).sqrt()
        at_spot: Any = (slice(None), slice(None), *spot)
        result[at_spot] = tokens[:, place] if layer == len(states) - 1 else vector
    return result


@pytest.mark.parametrize("case", CASES[:2])
@pytest.mark.parametrize(
    ("num_layers", "expected"),
    [(1, [0, 0, 0, 0]), (2, [0, 0, 1, 1]), (3, [0, 1, 2, 2]), (4, [0, 1, 2, 3]), (5, [1, 2, 3, 4])],
)
def test_feature_maps(case: dict[str, Any], num_layers: int, expected: list[int]) -> None:
    torch.manual_seed(3)
    case = case | {"num_layers": num_layers}
    encoder, vit = ViTEncoder(**options(case)).double().eval(), monai_vit(case).double().eval()
    for parameter in (encoder.norm.weight, encoder.norm.bias):
        nn.init.normal_(parameter)
    vit.load_state_dict(encoder.state_dict())
    images = torch.rand(2, encoder.in_channels, *encoder.img_size, dtype=torch.float64)
    maps = encoder.feature_maps(images)
    assert len(maps) == 4
    for features, layer, channels, strides in zip(
        maps, expected, encoder.feature_channels, encoder.feature_strides, strict=True
    ):
        torch.testing.assert_close(
            features, naive_feature_map(encoder, vit, images, layer), rtol=0, atol=1e-9
        )
        sizes = [n // s for n, s in zip(encoder.img_size, strides, strict=True)]
        assert features.shape == (2, channels, *sizes)
    torch.testing.assert_close(
        maps[-1].flatten(2).transpose(1, 2), encoder(images), rtol=0, atol=1e-12
    )


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
    with pytest.raises(ValueError, match="takes images"):
        encoder.encode_any_size(torch.rand(2, 3, 8, 8))


def test_recomputed_activations_give_the_same_gradients() -> None:
    sizes = {"img_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 2, "num_heads": 2}
    plain, again = ViTEncoder(**sizes), ViTEncoder(**sizes, use_checkpoint=True)
    again.load_state_dict(plain.state_dict())
    images = torch.rand(2, 1, 32, 32)
    for encoder in (plain, again):
        encoder(images).square().mean().backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)
