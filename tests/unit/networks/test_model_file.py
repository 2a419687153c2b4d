# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks come back from their files, which are not trusted."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.networks.nets import BasicUNet, ViT
from safetensors.torch import load_file, save_file
from torch import nn

from monai_afire.apps.exchange import export_encoder
from monai_afire.detection import AnomalyDetector, load_detector, save_detector
from monai_afire.networks import (
    DINO,
    MAE,
    PEAC,
    AFiRe,
    ModelFile,
    MONAIEncoder,
    ResidualEncoder,
    TransferClassifier,
    UPerNet,
    save_network,
)
from monai_afire.networks.definition import build_network, definition_of, keeps_arguments
from unit.tiny_networks import tiny_swin, tiny_vit


def monai_vit(**changed: Any) -> ViT:
    sizes = {"hidden_size": 24, "mlp_dim": 48, "num_layers": 2, "num_heads": 2, "spatial_dims": 2}
    return ViT(1, (32, 32), (8, 8), **sizes, **changed)


def monai_unet(**changed: Any) -> BasicUNet:
    return BasicUNet(spatial_dims=2, features=(4, 8, 8, 16, 16, 4), **changed)


def afire(**changed: Any) -> AFiRe:
    return AFiRe(tiny_vit(), 8, 16, 16, 1, 2, **changed)


NETWORKS = {
    "vit with other statistics": lambda: tiny_vit(mean=0.3, std=(0.2,), norm_eps=1e-6),
    "swin": lambda: tiny_swin(img_size=32),
    "residual": lambda: ResidualEncoder(img_size=32, hidden_size=64, depths=(1, 1, 1, 2)),
    "AFiRe on features": lambda: afire(contrast_space="features"),
    "PEAC": lambda: PEAC(tiny_vit(), 8, 8, global_balance="none"),
    "DINO": lambda: DINO(tiny_vit(), 16, 16, 8),
    "MAE": lambda: MAE(tiny_vit(), 16, 1, 2),
    "AFiRe with MONAI's ViT": lambda: AFiRe(
        monai_vit(classification=True, num_classes=3), 8, 16, 16, 1, 2
    ),
    "PEAC with MONAI's U-Net": lambda: PEAC(MONAIEncoder(monai_unet(norm="batch"), 32), 8, 8),
    "classifier": lambda: TransferClassifier(tiny_vit(), 2, standardize_features=False),
    "segmenter": lambda: UPerNet(tiny_swin(img_size=32), 3, channels=8),
    "encoder's detector": lambda: AnomalyDetector(tiny_vit(), memory_size=16, layers="all"),
}


def output(network: nn.Module) -> torch.Tensor:
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    network.eval()
    if isinstance(network, AnomalyDetector):  # not fitted
        network = network.network.encoder
    with torch.no_grad():
        return network(images)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_comes_back_from_its_file(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]()
    definition = definition_of(network)
    built = ModelFile(save_network(network, tmp_path / "model.pt")).build()
    assert definition_of(built) == definition
    assert list(built.state_dict()) == list(network.state_dict())
    assert torch.equal(output(built), output(network))


def test_a_description_survives_every_way_of_saving(tmp_path: Path) -> None:
    network = TransferClassifier(tiny_vit(), 2)
    path = save_network(network, tmp_path / "model.pt", {"class_names": ["a", "b"]})
    state = torch.load(path, weights_only=True)
    for content in (state, {"optimizer": {"state": {}}, "network": state}):
        torch.save(content, tmp_path / "again.pt")
        assert ModelFile(tmp_path / "again.pt").class_names == ["a", "b"]
        ModelFile(tmp_path / "again.pt").build()
    torch.save(dict(state), tmp_path / "bare.pt")
    with pytest.raises(ValueError, match=r"bare\.pt"):
        ModelFile(tmp_path / "bare.pt").build()
    network.load_state_dict(ModelFile(tmp_path / "bare.pt").state_dict)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_every_flipped_bit_of_the_tensors_is_noticed(tmp_path: Path, suffix: str) -> None:
    detector = AnomalyDetector(afire(), memory_size=16).eval()
    path = tmp_path / f"detector.{suffix}"
    save_network(detector, path) if suffix == "pt" else save_detector(detector, path)
    whole, rng = path.read_bytes(), random.Random(0)
    values = [value for value in ModelFile(path).state_dict.values() if value.numel() > 8]
    for _ in range(4):
        value = rng.choice(values).contiguous().view(torch.uint8)
        raw = value.flatten().numpy().tobytes()
        damaged = bytearray(whole)
        damaged[whole.index(raw) + rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=path.name):
            load_detector(path)
    path.write_bytes(whole)
    load_detector(path)


def test_tensors_that_another_program_has_changed_are_noticed(tmp_path: Path) -> None:
    path = save_network(tiny_vit(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match="another task"):
        load_detector(path)
    state = torch.load(path, weights_only=True)
    state["norm.bias"] = state["norm.bias"] + 1e-6
    torch.save(state, path)  # with new checksums of the archive
    with pytest.raises(ValueError, match=r"model.pt is damaged"):
        ModelFile(path).build()


def changed(definition: Any, argument: str, value: Any) -> dict[str, Any]:
    return {**definition, "arguments": {**definition["arguments"], argument: value}}


HOSTILE: dict[str, Any] = {
    "code": changed(definition_of(tiny_vit()), "pos_embed_type", "$__import__('os').getcwd()"),
    "retired argument": changed(definition_of(tiny_vit()), "stem", "convolution"),
    "another class": {"class": "os.system", "arguments": {"command": "true"}},
    "other layers of a U-Net": definition_of(
        MONAIEncoder(monai_unet(norm=("group", {"num_groups": 2})), 32)
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_definition_is_not_trusted(name: str) -> None:
    with pytest.raises(ValueError, match=r"^model.pt: cannot build"):
        build_network(HOSTILE[name], "model.pt")


def test_a_retired_argument_may_have_the_value_that_means_the_same() -> None:
    definition = definition_of(tiny_vit())
    assert definition_of(build_network(changed(definition, "stem", "patch"))) == definition


@keeps_arguments
class OwnNetwork(nn.Module):
    """A network of a user's own."""

    def __init__(self, encoder: nn.Module, num_masks: int = 4, name: str = "own") -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(24, num_masks)


def test_a_network_of_ones_own_is_saved_and_built(tmp_path: Path) -> None:
    network = OwnNetwork(tiny_vit(), num_masks=3)
    built = ModelFile(save_network(network, tmp_path / "model.pt")).build()
    assert type(built) is OwnNetwork
    assert torch.equal(built.head.weight, network.head.weight)


@pytest.mark.parametrize(
    "entries",
    [
        {"network": changed(definition_of(tiny_vit()), "hidden_size", 16)},
        {"format": 2},
        "[" * 100_000,
    ],
)
def test_a_description_is_not_trusted(tmp_path: Path, entries: Any) -> None:
    path = export_encoder(tiny_vit(), tmp_path / "encoder.safetensors")
    about = asdict(ModelFile(path).description)
    header = entries if isinstance(entries, str) else json.dumps({**about, **entries})
    save_file(load_file(path), path, metadata={"description": header})
    with pytest.raises((ValueError, RuntimeError)):
        ModelFile(path).build()


def test_an_exported_encoder_builds_itself(tmp_path: Path) -> None:
    encoder = tiny_vit(norm_eps=1e-6).eval()
    description = {"preprocessing": {"image_size": 32, "standardize": True}}
    path = export_encoder(encoder, tmp_path / "x.safetensors", "timm", description=description)
    assert ModelFile(path).standardize
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(ModelFile(path).build()(images), encoder(images))


@pytest.mark.slow
def test_every_file_that_comes_with_the_package_says_how_to_build_its_network(
    repository_root: Path,
) -> None:
    files = [
        *repository_root.glob("bundles/*/models/model.pt"),
        *repository_root.glob("bundles/*/released/*.pt"),
        *repository_root.glob("bundles/*/released/*.safetensors"),
    ]
    assert len(files) >= 14
    for path in files:
        if ModelFile(path).description.network is not None:  # small networks have their own class
            ModelFile(path).build()


def test_a_network_of_another_package_is_described_without_definition(tmp_path: Path) -> None:
    path = save_network(nn.Linear(2, 1), tmp_path / "model.pt", {"class_names": ["lung"]})
    assert ModelFile(path).class_names == ["lung"]
    with pytest.raises(ValueError, match=r"model\.pt"):
        ModelFile(path).build()
