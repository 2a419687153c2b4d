# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders of transformers against the library itself, with random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from monai_afire.networks import (
    HuggingFaceEncoder,
    ModelFile,
    TransferClassifier,
    build_encoder,
    load_encoder_weights,
    save_network,
)
from unit.tiny_networks import tiny_vit

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
SWIN_SIZES = {"image_size": 32, "patch_size": 2, "depths": [1, 2, 1], "num_heads": [1, 2, 2]}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTConfig", SIZES),
    "dinov2": ("Dinov2Config", SIZES),
    "registers": ("Dinov2WithRegistersConfig", {**SIZES, "num_register_tokens": 3}),
    "dinov3": ("DINOv3ViTConfig", {**SIZES, "num_register_tokens": 2}),
    "swin": ("SwinConfig", {**SWIN_SIZES, "embed_dim": 12, "window_size": 4}),
}
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def hub_model(name: str) -> Any:
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers: pip install 'monai-afire[hub]'"
    )
    kind, settings = CONFIGS[name]
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(getattr(transformers, kind)(**settings)).eval()
    for parameter in model.parameters():
        # initial position embeddings and biases of zero would hide what is wrong
        nn.init.normal_(parameter, std=0.2)
    return model


def saved(name: str, folder: Path, **preprocessing: Any) -> tuple[Any, Path]:
    model = hub_model(name)
    model.save_pretrained(folder)
    content = {"image_mean": MEAN, "image_std": STD, **preprocessing}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    return model, folder


def normalized(gray: torch.Tensor, mean: Any = MEAN, std: Any = STD) -> torch.Tensor:
    channels = [(gray[:, 0] - m) / s for m, s in zip(mean, std, strict=True)]
    return torch.stack(channels, 1)


@pytest.mark.parametrize(
    ("preprocessing", "white"),
    [
        ({"rescale_factor": 1 / 127.5, "do_normalize": False}, 2),
        ({"image_processor": {"image_mean": MEAN, "image_std": STD, "do_rescale": False}}, 255),
    ],
)
def test_preprocessing_of_other_scales(
    tmp_path: Path, preprocessing: dict[str, Any], white: float
) -> None:
    _, folder = saved("vit", tmp_path, **preprocessing)
    encoder = HuggingFaceEncoder(str(folder), img_size=32)
    mean, std = (MEAN, STD) if preprocessing.get("do_normalize", True) else ([0.0] * 3, [1.0] * 3)
    torch.testing.assert_close(encoder.model_mean.flatten(), torch.tensor(mean) / white)
    torch.testing.assert_close(encoder.model_std.flatten(), torch.tensor(std) / white)


def test_rectangular_vit_is_taken_at_its_own_size() -> None:
    """transformers takes any positions for those of a square."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(**{**SIZES, "image_size": (32, 64)})
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    nn.init.normal_(model.embeddings.position_embeddings)
    images = torch.rand(1, 1, 32, 64)
    encoder = HuggingFaceEncoder(model, (32, 64), mean=MEAN, std=STD)
    expected = model(normalized(images)).last_hidden_state[:, 1:]
    torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="own size"):
        HuggingFaceEncoder(model, (64, 64), mean=MEAN, std=STD)


@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_are_those_of_transformers(name: str) -> None:
    model, size = hub_model(name), 64
    images = torch.rand(2, 1, size, size)
    encoder = HuggingFaceEncoder(model, size, mean=MEAN, std=STD)
    needs = {"interpolate_pos_encoding": True} if name == "vit" else {}
    with torch.no_grad():
        expected = model(normalized(images), **needs, output_hidden_states=True)
    without = {"vit": 1, "dinov2": 1, "registers": 4, "dinov3": 3, "swin": 0}[name]
    torch.testing.assert_close(
        encoder(images), expected.last_hidden_state[:, without:], rtol=0, atol=1e-5
    )
    assert encoder.grid_size == (size // 8,) * 2
    maps = encoder.feature_maps(images)
    assert tuple(each.shape[1] for each in maps) == encoder.feature_channels
    assert tuple((size // each.shape[2],) * 2 for each in maps) == encoder.feature_strides
    torch.testing.assert_close(maps[-1].flatten(2).mT, encoder(images), rtol=0, atol=1e-5)
    if name != "swin":  # 5 blocks: the second, third, fourth and fifth; entry 0 is the embedding
        second = nn.functional.layer_norm(expected.hidden_states[2][:, without:], (24,))
        torch.testing.assert_close(maps[0].flatten(2).mT, second, rtol=0, atol=1e-5)
    else:
        assert encoder.feature_strides == ((2, 2), (4, 4), (8, 8))


def test_color_images_reach_a_model_in_its_normalization() -> None:
    model = hub_model("dinov2")
    images = torch.rand(2, 3, 32, 32)
    encoder = HuggingFaceEncoder(model, in_channels=3, mean=MEAN, std=STD)
    pixels = (images - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
    expected = model(pixels).last_hidden_state[:, 1:]
    torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-5)
    gray = torch.rand(2, 1, 32, 32)
    one = HuggingFaceEncoder(model, mean=MEAN, std=STD)
    torch.testing.assert_close(one.normalize(gray), (gray - 0.4) / 0.25)
    with pytest.raises(ValueError, match="in_channels"):
        HuggingFaceEncoder(model, in_channels=2)


def test_a_folder_is_read_with_its_normalization(tmp_path: Path) -> None:
    model, folder = saved("registers", tmp_path)
    images = torch.rand(2, 1, 32, 32)
    encoder = HuggingFaceEncoder(folder).eval()
    expected = model(normalized(images)).last_hidden_state[:, 4:]
    torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-5)
    # the config alone is enough where other weights follow
    (folder / "model.safetensors").unlink()
    random = HuggingFaceEncoder(folder, pretrained=False).eval()
    assert not torch.allclose(random(images), expected, atol=0.1)


@pytest.mark.parametrize("name", ["registers", "swin"])
def test_a_file_of_this_package_needs_no_folder(name: str, tmp_path: Path) -> None:
    _, folder = saved(name, tmp_path / "hub")
    network = TransferClassifier(HuggingFaceEncoder(folder, img_size=32), num_classes=2).eval()
    file = save_network(network, tmp_path / "model.pt", {"preprocessing": {"image_size": 32}})
    shutil.rmtree(folder)
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(ModelFile(file).build()(images), network(images), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["part", "pickle", "size"])
def test_models_that_do_not_fit_are_refused(tmp_path: Path, kind: str) -> None:
    model, folder = saved("vit", tmp_path)
    path = folder / "model.safetensors"
    # tokens do not depend on a pooler
    state = {name: each for name, each in load_file(path).items() if "pooler" not in name}
    save_file(state, path, metadata={"format": "pt"})
    HuggingFaceEncoder(folder)
    if kind == "part":
        del state[next(name for name in state if ".1." in name and state[name].ndim == 2)]
        save_file(state, path, metadata={"format": "pt"})
    elif kind == "pickle":
        path.unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="multiple" if kind == "size" else str(tmp_path)):
        HuggingFaceEncoder(folder, 42 if kind == "size" else None)


def test_a_bundle_chooses_by_name(tmp_path: Path) -> None:
    model, folder = saved("dinov2", tmp_path)
    own = tiny_vit()
    images = torch.rand(1, 1, 32, 32)
    expected = model(normalized(images)).last_hidden_state[:, 1:]
    chosen = build_encoder(f"hub:{folder}", own).eval()
    torch.testing.assert_close(chosen(images), expected, rtol=0, atol=1e-5)
    untrained = build_encoder(f"hub:{folder}:random", own).eval()
    assert not torch.allclose(untrained(images), expected, atol=0.1)
    # the names in its files are not those of the model, and only transformers knows how to translate them
    with pytest.raises(ValueError, match="hub:FOLDER"):
        load_encoder_weights(untrained, folder / "model.safetensors")
    load_encoder_weights(untrained, f"hub:{folder}")
    torch.testing.assert_close(untrained(images), expected, rtol=0, atol=1e-5)
