# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weights that come with the package: small, safe to read, and of use without any training."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import REPOSITORY_ROOT

from integration.bundle_runs import config, write_images
from integration.tiny_runs import BUNDLES, CONFIGS, FINE_TUNING, run_workflow
from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.detection import load_detector
from monai_afire.networks import ModelFile, ResidualEncoder, find_weights, load_encoder
from monai_afire.networks.weights.checkpoint_files import read_safetensors
from monai_afire.transforms import StandardizeContrast

MEGABYTE = 10**6
RELEASED = sorted(
    path
    for path in REPOSITORY_ROOT.glob("bundles/*/released/*")
    if path.suffix in (".pt", ".safetensors")
)
DEMOS = [CONFIGS[bundle].parent / "models/model.pt" for bundle in BUNDLES]
ENCODERS = {
    "released": (64, 8, 192),
    "released_224": (224, 16, 192),
    "released_cnn": (128, 32, 1280),
}


def test_all_files_are_small() -> None:
    sizes = {path: path.stat().st_size for path in [*RELEASED, *DEMOS]}
    assert max(sizes.values()) <= 12 * MEGABYTE
    assert sum(sizes.values()) <= 72 * MEGABYTE


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.name)
def test_every_released_file_has_a_card(path: Path) -> None:
    cards = [path.with_name("README.md"), path.parents[1] / "docs/README.md"]
    assert any(path.name in card.read_text() for card in cards if card.is_file())


@pytest.mark.parametrize("name", [path.name for path in RELEASED if path.suffix == ".safetensors"])
def test_a_flipped_bit_of_a_released_file_is_seen(name: str, tmp_path: Path) -> None:
    [path] = [path for path in RELEASED if path.name == name]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        read_safetensors(damaged)


@pytest.mark.parametrize("word", ENCODERS)
def test_encoders_load_whole_by_their_words(word: str) -> None:
    size, patch, width = ENCODERS[word]
    encoder, transform = load_encoder(word)
    image = transform(np.random.default_rng(0).random((300, 250)))
    assert image.shape == (1, size, size)
    tokens = encoder(image[None])
    assert tokens.shape == (1, (size // patch) ** 2, width)
    other = load_encoder(word, pretrained=False).encoder(image[None])
    assert not torch.allclose(tokens, other)


def test_the_vit_tiny_has_the_tensors_of_timm() -> None:
    tensors = read_safetensors(find_weights("released_224"))[0]
    inner = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    blocks = {
        f"blocks.{n}.{name}.{kind}"
        for n in range(12)
        for name in inner
        for kind in ("weight", "bias")
    }
    outer = {"pos_embed", "norm.weight", "norm.bias"}
    outer |= {f"patch_embed.proj.{kind}" for kind in ("weight", "bias")}
    assert set(tensors) == outer | blocks
    assert tensors["pos_embed"].shape == (1, 196, 192)
    assert tensors["blocks.11.attn.qkv.weight"].shape == (576, 192)


@torch.no_grad()
def test_the_segmenter_finds_lungs_and_heart() -> None:
    file = ModelFile(find_weights("released", "segmenter"), "segmenter")
    network = file.build().eval()
    for seed in range(3):
        chest = draw_chest_phantom(seed, file.image_size)
        image = torch.as_tensor(np.asarray(StandardizeContrast()(chest.image)))
        found = network(image[None])[0].numpy() > 0
        for mask, truth in zip(found, chest.organs[:3] > 0, strict=True):
            assert 2 * (mask & truth).sum() > 0.75 * (mask.sum() + truth.sum())


def test_the_classifier_tells_twelve_findings() -> None:
    file = ModelFile(find_weights("released", "classifier"), "classifier")
    assert len(file.class_names) == 12
    size = file.image_size
    assert file.build().eval()(torch.rand(1, file.channels, size, size)).shape == (1, 12)


def test_the_detector_is_ready_and_exported_as_it_is() -> None:
    """The file has no teacher, so that loading it as a checkpoint would fail."""
    assert torch.isfinite(
        load_detector(find_weights("released", "anomaly detector")).thresholds
    ).all()
    parser = config("afire", "inference")
    parser["export_network"] = {"network": "@detector_def", "path": "@export_path"}
    exported = parser.get_parsed_content("export")[-1]
    assert torch.isfinite(exported["network"].thresholds).all()
    assert Path(exported["path"]).parent.parent == Path("runs/afire")


@pytest.mark.parametrize("bundle", FINE_TUNING)
def test_a_task_shows_the_kind_of_network_that_it_trains(bundle: str) -> None:
    description = ModelFile(CONFIGS[bundle].parent / "models/model.pt").description
    assert description.network["arguments"]["encoder"]["class"] == ResidualEncoder.__name__


@pytest.mark.parametrize("bundle", BUNDLES)
def test_demo_weights_are_of_the_task_of_the_bundle(bundle: str) -> None:
    name = "restore" if bundle == "afire" else "inference"
    task = config(bundle, *(["inference", name] if bundle == "afire" else [name]))[
        "model_file::task"
    ]
    assert ModelFile(CONFIGS[bundle].parent / "models/model.pt").description.task == task


@pytest.mark.slow
def test_noise_is_not_judged() -> None:
    write_images(Path("images"), 3, size=96)
    run_workflow("afire", "inference", dataset_dir="images", output_dir="out", device="cpu")
    with Path("out/worklist.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert not {"decision", "p_value"} & set(rows[0])
    assert all("(by " in row["not_judged"] for row in rows)
