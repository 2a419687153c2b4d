# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders in checkpoint files of every nesting; files that are broken, dangerous or of another network are refused."""

from __future__ import annotations

import argparse
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from monai_afire.networks import (
    AFiRe,
    TransferClassifier,
    ViTEncoder,
    load_encoder_weights,
    save_network,
)
from unit.tiny_networks import tiny_vit

State = dict[str, torch.Tensor]
TIMM_NAMES = {
    "patch_embedding.patch_embeddings": "patch_embed.proj",
    "patch_embedding.position_embeddings": "pos_embed",
    "attn.out_proj": "attn.proj",
    "mlp.linear": "mlp.fc",
}


def build(seed: int = 0, **options: Any) -> ViTEncoder:
    """An encoder of which every parameter is random."""
    torch.manual_seed(seed)
    encoder = tiny_vit(**({"patch_size": 16, "num_layers": 2} | options))
    for parameter in encoder.parameters():
        parameter.data = torch.randn_like(parameter)
    return encoder


def timm_names(encoder: ViTEncoder) -> State:
    state = {
        name: tensor for name, tensor in encoder.state_dict().items() if "norm_cross" not in name
    }
    for old, new in TIMM_NAMES.items():
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    return state


def prefixed(prefix: str, state: State) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


def same(first: nn.Module, second: nn.Module) -> bool:
    """Whether all parameters that the forward pass uses are equal."""
    other = second.state_dict()
    return all(
        torch.equal(tensor, other[name])
        for name, tensor in first.state_dict().items()
        if "cross" not in name
    )


STUDENT, TEACHER = build(1), build(2)
ONE, TWO = timm_names(STUDENT), timm_names(TEACHER)
DECODER = {"decoder_blocks.0.norm1.weight": torch.ones(4), "mask_token": torch.ones(1, 1, 4)}

# content, expected prefix; each holds the teacher, some the student too
CHECKPOINTS: dict[str, tuple[Any, str]] = {
    "flat": (OrderedDict(TWO), ""),
    "dino": (
        {
            "student": prefixed("module.backbone.", ONE)
            | {"module.head.mlp.0.weight": torch.ones(2, 2)},
            "teacher": prefixed("backbone.", TWO) | {"head.mlp.0.weight": torch.ones(2, 2)},
            "optimizer": {"state": {0: {"exp_avg": torch.ones(2), "step": 3}}},
            "epoch": 100,
        },
        "teacher.backbone.",
    ),
    "mae": ({"model": TWO | DECODER, "epoch": 3, "scaler": {"scale": 2.0}}, "model."),
    "ema": ({"state_dict": ONE, "state_dict_ema": TWO, "arch": "vit_tiny"}, "state_dict_ema."),
    "momentum": (
        {"state_dict": prefixed("base_encoder.", ONE) | prefixed("momentum_encoder.", TWO)},
        "state_dict.momentum_encoder.",
    ),
    "compiled": (prefixed("_orig_mod.module.encoder.", TWO), "encoder."),
    "monai": (TEACHER.state_dict(), ""),
    "training arguments": (
        {"model": TWO, "args": argparse.Namespace(lr=0.1), "loss": np.float64(0.3)},
        "model.",
    ),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_nesting_is_found(name: str, tmp_path: Path) -> None:
    content, prefix = CHECKPOINTS[name]
    path = tmp_path / "weights.pth"
    torch.save(content, path, _use_new_zipfile_serialization=name != "training arguments")
    encoder = build(5)
    report = load_encoder_weights(encoder, path, strict=True)
    assert same(encoder, TEACHER)
    assert (report.prefix, report.resized) == (prefix, [])


@pytest.mark.parametrize("name", ["dino", "momentum"])
def test_student_on_demand(name: str) -> None:
    encoder = build(5)
    load_encoder_weights(encoder, CHECKPOINTS[name][0], branch="student")
    assert same(encoder, STUDENT)


def test_safetensors_by_name_or_content(tmp_path: Path) -> None:
    for name in ("weights.safetensors", "weights.bin"):
        save_file(ONE, tmp_path / name, metadata={"format": "pt", "description": "of timm"})
        encoder = build(5)
        assert load_encoder_weights(encoder, str(tmp_path / name)).missing == []
        assert same(encoder, STUDENT)


def test_student_and_teacher_of_a_network_both_start_from_the_weights() -> None:
    network = AFiRe(build(10), num_clusters=4, head_dim=8, decoder_dim=8, decoder_heads=2)
    head = network.head.state_dict()["mlp.0.weight"].clone()
    load_encoder_weights(network, ONE)
    assert same(network.encoder, STUDENT)
    assert same(network.teacher_encoder, STUDENT)
    assert network.encoder.norm.eps == network.teacher_encoder.norm.eps == 1e-6
    assert not any(parameter.requires_grad for parameter in network.teacher_encoder.parameters())
    assert torch.equal(network.head.state_dict()["mlp.0.weight"], head)


UNFIT: list[tuple[Any, dict[str, Any], str]] = [
    ({"conv1.weight": torch.ones(2, 2)}, {}, "conv1.weight"),
    ({"first": ONE, "second": TWO}, {}, r"first.*second"),
    (ONE | {"blocks.0.ls1.gamma": torch.ones(24)}, {}, "ls1"),
    (ONE | {"norm.bias": torch.full((24,), torch.nan)}, {}, "norm.bias"),
    (timm_names(build(1, hidden_size=32)), {}, "32"),
    (timm_names(build(1, num_layers=3)), {}, r"blocks\.2"),
    (timm_names(build(1, num_layers=1)), {}, r"blocks\.1"),
    (ONE | {"odd.weight": torch.ones(2)}, {"strict": True}, "odd"),
]


@pytest.mark.parametrize(("weights", "options", "words"), UNFIT)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    weights: Any, options: dict[str, Any], words: str
) -> None:
    encoder = build(5)
    with pytest.raises(ValueError, match=words):
        load_encoder_weights(encoder, weights, **options)
    assert same(encoder, build(5))


def test_a_missing_norm_and_odd_tensors_are_reported() -> None:
    others = {name: tensor for name, tensor in ONE.items() if "norm." not in name}
    report = load_encoder_weights(build(5), others | {"odd.weight": torch.ones(2)})
    assert report.missing == ["norm.weight", "norm.bias"]
    assert report.unexpected == ["odd.weight"]


@pytest.mark.parametrize("size", [(256, 64), (128, 128)])
def test_grid_that_a_file_states_is_not_guessed(tmp_path: Path, size: tuple[int, int]) -> None:
    """Positions of 4 x 16 patches are resampled (bicubic, antialiased, as by timm), also to as many patches."""
    old = TransferClassifier(build(1, img_size=(64, 256)), num_classes=1)
    new = build(5, img_size=size)
    load_encoder_weights(new, save_network(old, tmp_path / "model.pt"))
    picture = old.encoder.patch_embedding.position_embeddings.detach().mT.reshape(1, -1, 4, 16)
    expected = nn.functional.interpolate(picture, new.grid_size, mode="bicubic", antialias=True)
    found = new.patch_embedding.position_embeddings.detach()
    torch.testing.assert_close(found, expected.flatten(2).mT, rtol=0, atol=1e-5)


def test_networks_without_a_known_encoder() -> None:
    with pytest.raises(TypeError, match="encoder"):
        load_encoder_weights(nn.ModuleDict({"encoder": nn.Linear(2, 2)}), ONE)
