# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Exported encoders: read back bit by bit, and understood by the others' networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from monai_afire.apps.exchange import export_encoder
from monai_afire.networks import AFiRe, ModelFile, ViTEncoder, load_encoder_weights

CASES: dict[str, dict[str, Any]] = {
    "color": {"in_channels": 3, "mean": [0.1, 0.2, 0.3], "std": [0.3, 0.2, 0.1]},
    "oblong": {"img_size": (16, 64), "patch_size": (8, 16), "pos_embed_type": "learnable"},
    "without bias": {"qkv_bias": False, "mlp_dim": 20},
}


def build(seed: int, **options: Any) -> ViTEncoder:
    torch.manual_seed(seed)
    default = {"img_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 2, "num_heads": 2}
    encoder = ViTEncoder(**(default | options)).eval()
    for name, parameter in encoder.named_parameters():
        if "norm_cross" not in name:
            parameter.data = torch.randn_like(parameter)
    return encoder


def header_of(file: Path, entry: str) -> dict[str, Any]:
    with safe_open(file, framework="pt") as content:
        return json.loads(content.metadata()[entry])


@pytest.mark.parametrize("case", CASES)
def test_round_trip_is_bit_equal(case: str, tmp_path: Path) -> None:
    encoder, other = (build(seed, **CASES[case]) for seed in (0, 1))
    images = torch.rand(2, encoder.in_channels, *encoder.img_size)
    rebuilt = ModelFile(export_encoder(encoder, tmp_path / "encoder.safetensors")).build()
    assert torch.equal(rebuilt(images), encoder(images))
    encoder.norm.eps = other.norm.eps = 1e-6
    file = export_encoder(encoder, tmp_path / "new" / "encoder.safetensors")
    assert load_encoder_weights(other, file, strict=True).resized == []
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    assert {layer.eps for layer in other.modules() if isinstance(layer, nn.LayerNorm)} == {1e-6}


def test_timm_names_and_settings(tmp_path: Path) -> None:
    file = export_encoder(build(0, mlp_dim=36), tmp_path / "x.safetensors")
    layers = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    names = [f"blocks.{i}.{layer}" for i in range(2) for layer in layers]
    names += ["patch_embed.proj", "norm"]
    expected = {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    assert set(load_file(file)) == expected | {"pos_embed"}
    config = {"img_size": 32, "patch_size": 8, "in_chans": 1, "embed_dim": 24, "depth": 2}
    config |= {"num_heads": 2, "mlp_ratio": 1.5, "qkv_bias": True, "num_classes": 0}
    config |= {"class_token": False, "global_pool": "avg", "fc_norm": False}
    assert header_of(file, "config") == config


def test_hugging_face_reads_it_with_a_class_token_of_zeros(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    encoder = build(0, norm_eps=1e-12)
    file = export_encoder(encoder, tmp_path / "x.safetensors", "huggingface")
    config = transformers.ViTConfig(**header_of(file, "config"))
    tensors = load_file(file)
    model, info = transformers.ViTModel.from_pretrained(
        None, config=config, state_dict=tensors, add_pooling_layer=False, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    images = torch.rand(2, 1, 32, 32)
    pixels = (images - 0.449) / 0.226
    embedded = model.embeddings(pixels)
    torch.testing.assert_close(
        embedded[:, 1:], encoder.patch_embedding(encoder.normalize(images)), rtol=0, atol=1e-4
    )
    assert not embedded[:, 0].any()
    # without the class token, the blocks give the encoder's tokens
    tokens = embedded[:, 1:]
    for block in model.layers if hasattr(model, "layers") else model.encoder.layer:
        output = block(tokens)
        tokens = output[0] if isinstance(output, tuple) else output
    torch.testing.assert_close(model.layernorm(tokens), encoder(images), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("branch", ["teacher", "student"])
def test_teacher_or_student_of_a_network(branch: str, tmp_path: Path) -> None:
    network = AFiRe(build(0), 4, 8, 8, 1, 2)
    network.teacher_encoder.load_state_dict(build(1).state_dict())
    file = export_encoder(network, tmp_path / "x.safetensors", branch=branch)
    wanted = network.teacher_encoder if branch == "teacher" else network.encoder
    name = "blocks.0.attn.qkv.weight"
    assert torch.equal(load_file(file)[name], wanted.state_dict()[name])
