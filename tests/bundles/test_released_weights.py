# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weights that come with the package: small, safe to read, and of use without any training."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import pytest
import torch
from bundle_runs import copy_bundles, run_bundle, write_images
from monai.bundle import ConfigParser

from monai_afire.networks import ViTEncoder, load_encoder_weights, released_encoder
from monai_afire.networks.weights.released import released_file
from monai_afire.networks.weights.safetensors_files import read_safetensors

CONFIGS = "['bundles/afire/configs/inference.json','bundles/afire/configs/released.json']"
MEGABYTE = 10**6


def test_released_files_are_small_safetensors(repository_root: Path) -> None:
    folder = repository_root / "bundles" / "afire" / "released"
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.safetensors")}
    assert set(sizes) == {"detector.safetensors", "encoder.safetensors", "lungs.safetensors", "pose.safetensors"}
    assert max(sizes.values()) <= 12 * MEGABYTE
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(words in card for words in ("Limits", "Attribution", "Not for clinical use", *sizes))


@pytest.mark.parametrize("name", ["detector", "encoder", "lungs", "pose"])
def test_a_flipped_bit_of_a_released_file_is_seen(name: str, tmp_path: Path) -> None:
    content = bytearray(released_file(f"{name}.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    encoder = ViTEncoder(img_size=64, patch_size=8, hidden_size=192, num_layers=6, num_heads=6)
    read = partial(load_encoder_weights, encoder) if name == "encoder" else read_safetensors
    with pytest.raises(ValueError, match="the digest of its tensors does not match"):
        read(damaged)


def test_released_encoder_loads_whole_by_its_name() -> None:
    encoder = ViTEncoder(img_size=64, patch_size=8, hidden_size=192, num_layers=6, num_heads=6)
    before = encoder(torch.zeros(1, 1, 64, 64))
    report = load_encoder_weights(encoder, "released", strict=True)
    assert not report.missing
    assert not torch.equal(encoder(torch.zeros(1, 1, 64, 64)), before)
    assert released_encoder().is_file()


@pytest.mark.slow
def test_worklist_without_training(tmp_path: Path) -> None:
    folder = copy_bundles(tmp_path)
    write_images(folder / "images", 3, size=96)
    result = run_bundle(folder, CONFIGS, {"dataset_dir": folder / "images", "output_dir": folder / "out"})
    assert result.returncode == 0, result.stderr[-3000:]
    with (folder / "out" / "worklist.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert {row["decision"] for row in rows} == {"above"}  # noise is no normal radiograph


def test_released_detector_is_exported_as_it_is(repository_root: Path) -> None:
    """The file has no teacher, so that loading it as a checkpoint would fail; the export itself is tested elsewhere."""
    configs = repository_root / "bundles" / "afire" / "configs"
    parser = ConfigParser()
    parser.read_config([str(configs / "inference.json"), str(configs / "released.json")])
    parser["bundle_root"] = str(configs.parent)
    parser["export_network"] = {"network": "@detector_def", "path": "@export_path"}
    exported = parser.get_parsed_content("export")[-1]
    assert torch.isfinite(exported["network"].thresholds).all()
    assert Path(exported["path"]).parent.name == "models"
