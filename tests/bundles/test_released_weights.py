# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weights that come with the package: small, safe to read, and of use without any training."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_runs import copy_bundles, run_bundle, write_images
from monai.bundle import ConfigParser
from monai_afire.networks.weights.released_files import released_file

from monai_afire.apps.phantom import draw_chest_phantom
from monai_afire.networks import (
    EfficientNetLiteEncoder,
    ModelFile,
    ViTEncoder,
    load_encoder,
    load_encoder_weights,
    released_encoder,
)
from monai_afire.networks.weights.safetensors_files import read_safetensors
from monai_afire.transforms import StandardizeContrast

CONFIGS = "bundles/afire/configs/inference.json"
MEGABYTE = 10**6
RELEASED = (
    "detector",
    "efficientnet_lite0_contrast",
    "encoder",
    "lungs",
    "normals",
    "pose",
    "views",
    "vit_tiny_patch16_224",
)


def test_released_files_are_small_safetensors(repository_root: Path) -> None:
    files = list(repository_root.glob("bundles/*/released/*.safetensors"))
    assert sorted(path.stem for path in files) == sorted(RELEASED)
    for path in files:
        assert path.stat().st_size <= 12 * MEGABYTE


def test_all_weights_together_are_at_most_72_megabytes(repository_root: Path) -> None:
    files = [
        *repository_root.glob("bundles/*/models/model.pt"),
        *repository_root.glob("bundles/*/released/*.*t*"),
    ]
    assert sum(path.stat().st_size for path in files) <= 72 * MEGABYTE


@pytest.mark.parametrize("name", RELEASED)
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


def test_vit_tiny_loads_whole_by_its_name_and_has_the_tensors_of_timm() -> None:
    encoder = ViTEncoder(img_size=224, patch_size=16, hidden_size=192, num_layers=12, num_heads=3)
    assert not load_encoder_weights(encoder, "released_224", strict=True).missing
    tensors = read_safetensors(released_encoder("released_224"))[0]
    outer = {
        "pos_embed",
        "patch_embed.proj.weight",
        "patch_embed.proj.bias",
        "norm.weight",
        "norm.bias",
    }
    inner = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    blocks = {
        f"blocks.{n}.{name}.{kind}"
        for n in range(12)
        for name in inner
        for kind in ("weight", "bias")
    }
    assert set(tensors) == outer | blocks
    assert tensors["pos_embed"].shape == (1, 196, 192)
    assert tensors["patch_embed.proj.weight"].shape == (192, 1, 16, 16)
    assert tensors["blocks.11.attn.qkv.weight"].shape == (576, 192)


def test_the_convolutional_encoder_loads_whole_by_its_name() -> None:
    encoder = EfficientNetLiteEncoder(img_size=128)
    assert not load_encoder_weights(encoder, "released_cnn", strict=True).missing
    images = torch.rand(2, 1, 128, 128, generator=torch.Generator().manual_seed(0))
    ready, _ = load_encoder("released_cnn")
    torch.testing.assert_close(ready(images), encoder.eval()(images))


@torch.no_grad()
def test_the_segmenter_finds_lungs_and_heart(repository_root: Path) -> None:
    released = repository_root / "bundles/radiograph_segmentation/released/lungs_and_heart.pt"
    file = ModelFile(released, "segmenter")
    network = file.build().eval()
    for seed in range(3):
        chest = draw_chest_phantom(seed, file.image_size)
        image = torch.as_tensor(np.asarray(StandardizeContrast()(chest.image)))
        found = network(image[None])[0].numpy() > 0
        for mask, truth in zip(found, chest.organs[:3] > 0, strict=True):
            assert 2 * (mask & truth).sum() > 0.75 * (mask.sum() + truth.sum())


def test_refuses_a_released_encoder_of_another_name() -> None:
    with pytest.raises(
        ValueError,
        match="no released encoder 'released_512': there are released, released_224, released_cnn",
    ):
        released_encoder("released_512")


@pytest.mark.slow
def test_worklist_without_training(tmp_path: Path) -> None:
    folder = copy_bundles(tmp_path)
    write_images(folder / "images", 3, size=96)
    result = run_bundle(
        folder, CONFIGS, {"dataset_dir": folder / "images", "output_dir": folder / "out"}
    )
    assert result.returncode == 0, result.stderr[-3000:]
    with (folder / "out" / "worklist.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    # noise is no radiograph: nothing is said about it
    assert {row["decision"] for row in rows} == {row["p_value"] for row in rows} == {""}
    assert all("(by " in row["not_judged"] for row in rows)


def test_released_detector_is_exported_as_it_is(
    repository_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has no teacher, so that loading it as a checkpoint would fail; the export itself is tested elsewhere."""
    monkeypatch.chdir(tmp_path)
    configs = repository_root / "bundles" / "afire" / "configs"
    parser = ConfigParser()
    parser.read_config(str(configs / "inference.json"))
    parser["bundle_root"] = str(configs.parent)
    parser["export_network"] = {"network": "@detector_def", "path": "@export_path"}
    exported = parser.get_parsed_content("export")[-1]
    assert torch.isfinite(exported["network"].thresholds).all()
    assert Path(exported["path"]).parent.parent == Path("runs/afire")
