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
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights import checkpoint_files
from monai_afire.networks.weights.weight_loading import load_encoder_weights

CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "color": {"in_channels": 3, "mean": [0.1, 0.2, 0.3], "std": [0.3, 0.2, 0.1]},
    "oblong": {"img_size": (16, 64), "patch_size": (8, 16), "pos_embed_type": "learnable"},
    "oblong with a square number of patches": {"img_size": (8, 32)},
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


def header_of(file: Path) -> dict[str, Any]:
    with safe_open(file, framework="pt") as content:
        header = content.metadata()
    return header | {name: json.loads(header[name]) for name in ("description", "config")}


def arguments_of(file: Path) -> dict[str, Any]:
    return header_of(file)["description"]["network"]["arguments"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_round_trip_is_bit_equal(case: str, dtype: torch.dtype, tmp_path: Path) -> None:
    encoder, other = (build(seed, **CASES[case]).to(dtype) for seed in (0, 1))
    encoder.norm.eps = other.norm.eps = 1e-6
    file = export_encoder(encoder, tmp_path / "new" / "encoder.safetensors")
    assert file == tmp_path / "new" / "encoder.safetensors"
    report = load_encoder_weights(other, file)
    found = (report.layout, report.missing, report.unexpected, report.resized)
    assert found == ("timm", [], [], [])
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
        assert other.state_dict()[name].dtype == dtype
    assert {layer.eps for layer in other.modules() if isinstance(layer, nn.LayerNorm)} == {1e-6}


def test_header_builds_the_encoder(tmp_path: Path) -> None:
    for case in CASES.values():
        encoder = build(0, **case)
        header = header_of(export_encoder(encoder, tmp_path / "x.safetensors"))
        assert (header["format"], header["producer"], header["layout"]) == (
            "pt",
            "monai_afire",
            "timm",
        )
        assert "encoder" not in header  # one description
        settings = arguments_of(tmp_path / "x.safetensors")
        assert settings["norm_eps"] == 1e-5
        rebuilt = ViTEncoder(**settings).eval()
        load_encoder_weights(rebuilt, tmp_path / "x.safetensors", strict=True)
        images = torch.rand(2, encoder.in_channels, *encoder.img_size)
        assert torch.equal(rebuilt(images), encoder(images))


def test_timm_names_and_settings(tmp_path: Path) -> None:
    file = export_encoder(build(0), tmp_path / "x.safetensors")
    layers = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    names = [
        "patch_embed.proj",
        "norm",
        *(f"blocks.{i}.{layer}" for i in range(2) for layer in layers),
    ]
    assert set(load_file(file)) == {
        "pos_embed",
        *(f"{name}.{part}" for name in names for part in ("weight", "bias")),
    }
    expected: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "in_chans": 1,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 2,
    }
    expected |= {"mlp_ratio": 4.0, "qkv_bias": True, "num_classes": 0}
    expected |= {"class_token": False, "global_pool": "avg", "fc_norm": False}
    assert header_of(file)["config"] == expected
    assert arguments_of(file)["mean"] == pytest.approx([0.449])
    narrow = export_encoder(build(0, mlp_dim=36), tmp_path / "x.safetensors")
    assert header_of(narrow)["config"]["mlp_ratio"] == 1.5


def test_hugging_face_names_and_settings(tmp_path: Path) -> None:
    encoder = build(0, img_size=(16, 64))
    file = export_encoder(encoder, tmp_path / "x.safetensors", "huggingface")
    tensors = load_file(file)
    parts = ["query", "key", "value"]
    layers = [
        "layernorm_before",
        "layernorm_after",
        "intermediate.dense",
        "output.dense",
        "attention.output.dense",
    ]
    layers += [f"attention.attention.{part}" for part in parts]
    names = [f"encoder.layer.{i}.{layer}" for i in range(2) for layer in layers]
    names += ["layernorm", "embeddings.patch_embeddings.projection"]
    expected = {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    assert set(tensors) == expected | {"embeddings.cls_token", "embeddings.position_embeddings"}
    assert tensors["embeddings.position_embeddings"].shape == (1, 17, 24)
    assert (
        tensors["embeddings.cls_token"].abs().max()
        == tensors["embeddings.position_embeddings"][:, 0].abs().max()
        == 0
    )
    for i, part in enumerate(parts):
        rows = encoder.state_dict()["blocks.1.attn.qkv.weight"][24 * i : 24 * (i + 1)]
        assert torch.equal(tensors[f"encoder.layer.1.attention.attention.{part}.weight"], rows)
    config = header_of(file)["config"]
    assert config["image_size"] == [16, 64]
    assert (config["hidden_size"], config["intermediate_size"], config["layer_norm_eps"]) == (
        24,
        96,
        1e-5,
    )


@pytest.mark.parametrize("branch", ["teacher", "student"])
def test_teacher_or_student_of_a_network(branch: str, tmp_path: Path) -> None:
    network = AFiRe(
        build(0), num_clusters=4, head_dim=8, decoder_dim=8, decoder_layers=1, decoder_heads=2
    )
    network.teacher_encoder.load_state_dict(build(1).state_dict())
    file = export_encoder(network, tmp_path / "x.safetensors", branch=branch)
    wanted = network.teacher_encoder if branch == "teacher" else network.encoder
    assert torch.equal(
        load_file(file)["blocks.0.attn.qkv.weight"], wanted.state_dict()["blocks.0.attn.qkv.weight"]
    )


def test_header_speaks_before_the_format_and_after_the_user(tmp_path: Path) -> None:
    """Color weights of another normalization than ImageNet's and the target's."""
    source, target = (
        build(0, in_channels=3, mean=0.5, std=0.25).double(),
        build(1, in_channels=3).double(),
    )
    file = export_encoder(source, tmp_path / "x.safetensors")
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    load_encoder_weights(target, file)
    torch.testing.assert_close(target(images), source(images), rtol=0, atol=1e-9)
    load_encoder_weights(target, file, source_normalization=(0.449, 0.226))
    name = "patch_embedding.patch_embeddings.weight"
    torch.testing.assert_close(target.state_dict()[name], source.state_dict()[name])


def test_another_number_of_heads_is_refused(tmp_path: Path) -> None:
    file = export_encoder(build(0), tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="num_heads=2"):
        load_encoder_weights(build(1, num_heads=3), file)


def test_a_told_number_of_heads_needs_no_advice(tmp_path: Path) -> None:
    settings = {"hidden_size": 192, "num_heads": 6}  # published models of this width have 3
    file = export_encoder(build(0, **settings), tmp_path / "x.safetensors")
    assert load_encoder_weights(build(1, **settings), file).notes == []


def test_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = export_encoder(build(0), tmp_path / "x.safetensors")
    before = file.read_bytes()

    def fail(tensors: Any, path: Path, metadata: Any) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint_files, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        export_encoder(build(1), file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_arguments_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"layout must be one of .*'timm'.*'onnx'"):
        export_encoder(build(0), tmp_path / "x.safetensors", "onnx")
    with pytest.raises(ValueError, match="branch must be"):
        export_encoder(build(0), tmp_path / "x.safetensors", branch="ema")
    with pytest.raises(TypeError, match="Linear"):
        export_encoder(nn.Linear(2, 2), tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
