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
from integration.tiny_runs import run_workflow
from monai_afire.data.phantom import draw_chest_phantom
from monai_afire.detection import load_detector
from monai_afire.networks import ModelFile, find_weights, load_encoder
from monai_afire.networks.weights.checkpoint_files import read_safetensors
from monai_afire.transforms import StandardizeContrast

RELEASED = sorted(
    path
    for path in REPOSITORY_ROOT.glob("bundles/*/released/*")
    if path.suffix in (".pt", ".safetensors")
)
ENCODERS = {
    "released": (64, 8, 192),
    "released_224": (224, 16, 192),
    "released_cnn": (128, 32, 1280),
}


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


@pytest.mark.slow
def test_noise_is_not_judged() -> None:
    write_images(Path("images"), 3, size=96)
    run_workflow("afire", "inference", dataset_dir="images", output_dir="out", device="cpu")
    with Path("out/worklist.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert not {"decision", "p_value"} & set(rows[0])
    assert all("(by " in row["not_judged"] for row in rows)
