# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder against MONAI's ViT."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.networks.nets import ViT

from monai_afire.networks.nets.vit_encoder import GRAY_MEAN, GRAY_STD, ViTEncoder

CASES: list[dict[str, Any]] = [
    {},
    {"in_channels": 3, "img_size": (32, 48), "patch_size": (16, 8)},
    {"img_size": (16, 32, 16), "patch_size": 8, "spatial_dims": 3},
    {"pos_embed_type": "learnable", "qkv_bias": False, "mlp_dim": 20},
    {"pos_embed_type": "none", "img_size": 16},
]


def options(case: dict[str, Any]) -> dict[str, Any]:
    default = {"in_channels": 1, "img_size": 32, "patch_size": 16, "hidden_size": 24, "num_layers": 2, "num_heads": 2}
    return default | {"pos_embed_type": "sincos", "qkv_bias": True} | case


def monai_vit(case: dict[str, Any]) -> ViT:
    settings = options(case)
    dims = settings.get("spatial_dims", 2)
    sizes = {key: (v,) * dims if isinstance(v := settings[key], int) else v for key in ("img_size", "patch_size")}
    return ViT(**(settings | sizes | {"mlp_dim": settings.get("mlp_dim", 96), "spatial_dims": dims}))


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
    assert tokens.shape == (2, encoder.grid_size[0] * encoder.grid_size[1] * (encoder.grid_size[2:] or (1,))[0], 24)


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
            assert parameter.grad is not None, name  # a parameter without gradient stops distributed training
            torch.testing.assert_close(parameter.grad, reference[name].grad, rtol=0, atol=1e-10)
        else:
            assert parameter.grad is None


def test_normalisation() -> None:
    encoder = ViTEncoder(**options({}))
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(encoder.normalize(images), (images - GRAY_MEAN) / GRAY_STD)
    torch.testing.assert_close(encoder.denormalize(encoder.normalize(images)), images)
    assert encoder.denormalize(torch.tensor([-100.0, 100.0])).flatten().tolist() == [0.0, 1.0]
    colour = ViTEncoder(**options({"in_channels": 3, "mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 4.0]}))
    expected = torch.tensor([0.9, 0.4, 0.175]).reshape(1, 3, 1, 1).expand(1, 3, 32, 32)
    torch.testing.assert_close(colour.normalize(torch.ones(1, 3, 32, 32)), expected)
    assert not {"mean", "std"} & set(colour.state_dict())


def test_sincos_embedding_is_fixed_and_distinct() -> None:
    encoder = ViTEncoder(**options({"img_size": 64}))
    embedding = encoder.patch_embedding.position_embeddings
    assert not embedding.requires_grad
    assert embedding.shape == (1, 16, 24)
    distances = torch.cdist(embedding, embedding)[0] + 10 * torch.eye(16)
    assert distances.min() > 0.1
    again = ViTEncoder(**options({"img_size": 64}))
    assert torch.equal(again.patch_embedding.position_embeddings, embedding)
    learnable = ViTEncoder(**options({"pos_embed_type": "learnable"}))
    assert learnable.patch_embedding.position_embeddings.requires_grad


def test_default_is_vit_b_16() -> None:
    with torch.device("meta"):
        encoder = ViTEncoder()
    assert (encoder.hidden_size, encoder.grid_size, len(encoder.blocks)) == (768, (14, 14), 12)
    # the usual 85,798,656 of ViT-B/16 less two of three colour channels, the class token and its position
    expected = 85_798_656 - 2 * 16 * 16 * 768 - 768 - 768
    assert sum(p.numel() for name, p in encoder.named_parameters() if "norm_cross" not in name) == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_errs_little(dtype: torch.dtype) -> None:
    """Mean relative error of the tokens under autocast: below 3 % (bfloat16), far less in float16."""
    torch.manual_seed(2)
    encoder = ViTEncoder(**options({})).eval()
    image = torch.rand(4, 1, 32, 32)
    exact = encoder(image)
    with torch.autocast("cpu", dtype=dtype):
        tokens = encoder(image)
    assert torch.isfinite(tokens).all()
    assert (tokens.float() - exact).norm() / exact.norm() < (0.03 if dtype == torch.bfloat16 else 0.004)


def test_images_of_another_size_are_refused() -> None:
    encoder = ViTEncoder(**options({}))
    for shape in ((2, 1, 32, 48), (2, 3, 32, 32), (2, 1, 32)):
        with pytest.raises(ValueError, match=r"\(B, 1, 32, 32\), got"):
            encoder(torch.zeros(shape))
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        ViTEncoder(**options({"img_size": 40}))
