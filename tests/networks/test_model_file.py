# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Files of networks know how to be built, notice damage, and refuse what is no description."""

from __future__ import annotations

import copy
import json
import random
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
    ACE,
    DINO,
    MAE,
    PEAC,
    AFiRe,
    ModelFile,
    MONAIEncoder,
    SwinEncoder,
    TransferClassifier,
    UPerNet,
    ViTEncoder,
    find_weights,
    load_network,
    save_network,
)
from monai_afire.networks.definition import build_network, definition_of, keeps_arguments
from monai_afire.networks.weights.checkpoint_files import read_description, read_pickle
from monai_afire.networks.weights.description import Preprocessing, describe, tensor_digest
from monai_afire.networks.weights.safetensors_files import write_safetensors


def vit(**changed: Any) -> ViTEncoder:
    settings = {"img_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
    return ViTEncoder(**{**settings, **changed})


def swin() -> SwinEncoder:
    return SwinEncoder(
        img_size=64, patch_size=2, window_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2)
    )


def monai_vit(**changed: Any) -> ViT:
    settings = {
        "in_channels": 1,
        "img_size": (32, 32),
        "patch_size": (8, 8),
        "hidden_size": 24,
        "mlp_dim": 48,
    }
    return ViT(**settings, num_layers=2, num_heads=2, spatial_dims=2, **changed)


def monai_unet(**changed: Any) -> BasicUNet:
    return BasicUNet(spatial_dims=2, features=(4, 8, 8, 16, 16, 4), **changed)


def afire(**changed: Any) -> AFiRe:
    return AFiRe(vit(), 8, 16, 16, 1, 2, **changed)


NETWORKS = {
    "vit": vit,
    "oblong vit with other statistics": lambda: vit(
        img_size=(32, 16), mean=0.3, std=(0.2,), norm_eps=1e-6
    ),
    "volume": lambda: vit(img_size=16, spatial_dims=3, pos_embed_type="learnable"),
    "swin": swin,
    "AFiRe": afire,
    "AFiRe on features": lambda: afire(contrast_space="features"),
    "PEAC": lambda: PEAC(vit(), 8, 8, global_balance="predictor"),
    "PEAC with Swin": lambda: PEAC(swin(), 8, 8),
    "ACE": lambda: ACE(vit()),
    "DINO": lambda: DINO(vit(), 16, 16, 8),
    "MAE": lambda: MAE(vit(), 16, 1, 2),
    "MONAI's ViT": lambda: MONAIEncoder(monai_vit()),
    "AFiRe with MONAI's ViT": lambda: AFiRe(
        monai_vit(classification=True, num_classes=3), 8, 16, 16, 1, 2
    ),
    "MONAI's U-Net": lambda: MONAIEncoder(monai_unet(), 32),
    "PEAC with MONAI's U-Net": lambda: PEAC(MONAIEncoder(monai_unet(norm="batch"), 32), 8, 8),
    "classifier": lambda: TransferClassifier(vit(), 2, standardize_features=False),
    "segmenter": lambda: UPerNet(swin(), 3, channels=8),
    "detector": lambda: AnomalyDetector(afire(), memory_size=16, views=2),
    "encoder's detector": lambda: AnomalyDetector(vit(), memory_size=16, layers="all"),
}
IMAGES = {"volume": (2, 1, 16, 16, 16), "oblong vit with other statistics": (2, 1, 32, 16)}
INPUT = {"image_size": 32}


def outputs(network: nn.Module, name: str) -> list[torch.Tensor]:
    size = 64 if "swin" in name.lower() or name == "segmenter" else 32
    images = torch.rand(
        IMAGES.get(name, (2, 1, size, size)), generator=torch.Generator().manual_seed(0)
    )
    network.eval()
    if isinstance(network, AnomalyDetector):  # not fitted
        network = network.network.encoder
    with torch.no_grad():
        result = network(images)
    return list(result.values()) if isinstance(result, dict) else [result]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_comes_back_from_its_file(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]()
    definition = definition_of(network)
    assert json.loads(json.dumps(definition)) == definition
    path = save_network(network, tmp_path / "model.pt", {"preprocessing": INPUT})
    built = ModelFile(path).build()
    assert definition_of(built) == definition
    assert list(built.state_dict()) == list(network.state_dict())
    for found, expected in zip(outputs(built, name), outputs(network, name), strict=True):
        assert torch.equal(found, expected)


def test_describing_a_unet_draws_no_random_numbers() -> None:
    network = MONAIEncoder(monai_unet(), 32)
    before = torch.get_rng_state()
    definition_of(network)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_unet_with_other_layers_is_not_described(tmp_path: Path) -> None:
    network = MONAIEncoder(monai_unet(norm=("group", {"num_groups": 2})), 32)
    path = save_network(network, tmp_path / "model.pt", {"preprocessing": INPUT})
    with pytest.raises(ValueError, match="cannot build"):
        ModelFile(path).build()


def test_a_description_survives_every_way_of_saving(tmp_path: Path) -> None:
    path = save_network(
        TransferClassifier(vit(), 2), tmp_path / "model.pt", {"class_names": ["a", "b"]}
    )
    for name, content in {
        "read and saved again": read_pickle(path),
        "by torch alone": torch.load(path, weights_only=True),
        "in a checkpoint": {"optimizer": {"state": {}}, "network": read_pickle(path)},
        "in a copy": copy.deepcopy(read_pickle(path)),
    }.items():
        torch.save(content, tmp_path / "again.pt")
        assert ModelFile(tmp_path / "again.pt").class_names == ["a", "b"], name
        ModelFile(tmp_path / "again.pt").build()
    torch.save(dict(read_pickle(path)), tmp_path / "bare.pt")
    assert read_description(tmp_path / "bare.pt") is None
    with pytest.raises(ValueError, match="does not say how to build its network"):
        ModelFile(tmp_path / "bare.pt").build()


def test_the_eps_of_loaded_weights_is_kept(tmp_path: Path) -> None:
    encoder = vit()
    for layer in encoder.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.eps = 1e-12
    built = ModelFile(save_network(encoder, tmp_path / "model.pt")).build()
    assert {layer.eps for layer in built.modules() if isinstance(layer, nn.LayerNorm)} == {1e-12}


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_every_flipped_bit_of_the_tensors_is_noticed(tmp_path: Path, suffix: str) -> None:
    detector = AnomalyDetector(afire(), memory_size=16).eval()
    path = tmp_path / f"detector.{suffix}"
    save_network(detector, path) if suffix == "pt" else save_detector(detector, path)
    whole, rng = path.read_bytes(), random.Random(0)
    values = {
        name: value for name, value in ModelFile(path).state_dict.items() if value.numel() > 8
    }
    for _ in range(60):
        raw = (
            values[rng.choice(list(values))]
            .contiguous()
            .view(torch.uint8)
            .flatten()
            .numpy()
            .tobytes()
        )
        place = whole.index(raw) + rng.randrange(len(raw))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=path.name):
            load_detector(path)
    path.write_bytes(whole)
    load_detector(path)


def test_tensors_that_another_program_has_changed_are_noticed(tmp_path: Path) -> None:
    path = save_network(vit(), tmp_path / "model.pt")
    state = read_pickle(path)
    state["norm.bias"] = state["norm.bias"] + 1e-6
    torch.save(state, path)  # with new checksums of the archive
    with pytest.raises(ValueError, match=r"model.pt is damaged: the digest"):
        ModelFile(path).build()


def test_the_digest_is_of_names_types_shapes_and_bytes() -> None:
    state = {
        "a": torch.zeros(2, 3),
        "b": torch.zeros(2, dtype=torch.bfloat16),
        "c": torch.tensor(1),
    }
    others = [
        {**state, "a": torch.zeros(3, 2)},
        {**state, "b": torch.zeros(2, dtype=torch.float16)},
        {"d": state["a"], "b": state["b"], "c": state["c"]},
        {**state, "c": torch.tensor(2)},
        {**state, "a": -state["a"]},
    ]
    assert len({tensor_digest(each) for each in [state, *others]}) == len(others) + 1
    assert tensor_digest(dict(reversed(state.items()))) == tensor_digest(state)


def changed(definition: Any, argument: str, value: Any) -> dict[str, Any]:
    return {**definition, "arguments": {**definition["arguments"], argument: value}}


def nested(depth: int) -> dict[str, Any]:
    definition: dict[str, Any] = {"class": "ViTEncoder", "arguments": {}}
    for _ in range(depth):
        definition = {"class": "AFiRe", "arguments": {"encoder": definition}}
    return definition


HOSTILE: dict[str, Any] = {
    "cannot build": changed(definition_of(vit()), "pos_embed_type", "$__import__('os').getcwd()"),
    "device": changed(definition_of(vit()), "device", "cpu"),
    "os.system": {"class": "os.system", "arguments": {"command": "true"}},
    "class 3": {"class": 3, "arguments": {}},
    "encoder": {"class": "AFiRe", "arguments": {}},
    "'class'": {"_target_": "os.getcwd"},
    "not subscriptable": 3,
    "recursion": nested(500),
    "no encoder": changed(definition_of(afire()), "encoder", "$print()"),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_definition_is_not_trusted(message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        build_network(HOSTILE[message], "model.pt")
    assert str(caught.value).startswith("model.pt: ")


@keeps_arguments
class OwnNetwork(nn.Module):
    """A network of a user's own."""

    def __init__(self, encoder: nn.Module, num_masks: int = 4, name: str = "own") -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(24, num_masks)


def test_a_network_of_ones_own_is_saved_and_built(tmp_path: Path) -> None:
    network = OwnNetwork(vit(), num_masks=3)
    path = save_network(network, tmp_path / "model.pt", {"preprocessing": {"image_size": 32}})
    built = ModelFile(path).build()
    assert type(built) is OwnNetwork
    assert torch.equal(built.head.weight, network.head.weight)


def edited(path: Path, **entries: Any) -> Path:
    """A safetensors file whose description says something else."""
    tensors, description = load_file(path), read_description(path)
    assert description is not None
    header = {"description": json.dumps({**description.as_data(), **entries})}
    save_file(tensors, path, metadata=header)
    return path


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"network": 3}, "network is 3: Input"),
        ({"task": None}, "task is None: Input"),
        ({"format": 2}, "format is 2: .* if a newer version wrote it"),
        ({"surprise": 1}, "surprise is 1: Unexpected"),
        ({"class_names": [1]}, "class_names is 1: Input"),
        ({"label_kind": "ordinal"}, "label_kind is ordinal"),
        ({"preprocessing": {"image_size": 10**6}}, "image_size is 1000000: Input"),
        ({"preprocessing": {"image_size": 32, "color": 3}}, "preprocessing.color is 3: Unexpected"),
        ({"preprocessing": {"image_size": 32, "standardize": "no"}}, "standardize is no: Input"),
        ({"preprocessing": [32]}, r"preprocessing is \[32\]: Input"),
        ({"network": changed(definition_of(vit()), "hidden_size", 16_368)}, "another architecture"),
        ({"network": changed(definition_of(vit()), "num_layers", 200)}, "another architecture"),
    ],
)
def test_a_description_is_not_trusted(
    tmp_path: Path, entries: dict[str, Any], message: str
) -> None:
    encoder = vit()
    described = describe(encoder, task="encoder", preprocessing={})
    file = write_safetensors(encoder.state_dict(), tmp_path / "encoder.safetensors", described)
    path = edited(file, **entries)
    with pytest.raises(ValueError, match=message) as caught:
        ModelFile(path).build()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("header", ["{", "[1]", "null", "3", "[" * 100_000])
def test_a_header_that_is_no_description_is_refused(tmp_path: Path, header: str) -> None:
    save_file({"w": torch.ones(1)}, tmp_path / "x.safetensors", metadata={"description": header})
    with pytest.raises(ValueError, match=r"x.safetensors has a wrong description"):
        ModelFile(tmp_path / "x.safetensors").build()


def test_a_network_for_another_task_is_refused_by_name(tmp_path: Path) -> None:
    pretrained = save_network(afire(), tmp_path / "pretrained.pt")
    classifier = save_network(TransferClassifier(vit(), 2), tmp_path / "classifier.pt")
    detector = save_network(AnomalyDetector(afire(), memory_size=16), tmp_path / "detector.pt")
    with pytest.raises(
        ValueError,
        match=r"pretrained.pt is a pre-trained AFiRe network, not an anomaly detector: adapt .*finetune_anomaly",
    ):
        load_detector(pretrained)
    with pytest.raises(
        ValueError, match=r"detector.pt is an anomaly detector, not a pre-trained AFiRe network"
    ):
        ModelFile(detector, "pre-trained AFiRe network").build()
    with pytest.raises(ValueError, match=r"classifier.pt is a classifier, not a segmenter"):
        ModelFile(classifier, "segmenter").build()
    with pytest.raises(
        RuntimeError,
        match=r"pretrained.pt is for another task, pre-trained AFiRe network instead of",
    ):
        load_network(AnomalyDetector(afire(), memory_size=16), pretrained)


def test_an_exported_encoder_builds_itself(tmp_path: Path) -> None:
    encoder = vit(norm_eps=1e-6).eval()
    images = torch.rand(2, 1, 32, 32)
    for layout in ("timm", "huggingface"):
        description = {"preprocessing": {"image_size": 32, "standardize": True}}
        path = export_encoder(encoder, tmp_path / "x.safetensors", layout, description=description)
        file = ModelFile(path)
        assert file.standardize
        if layout != "huggingface":  # which has a class token of zeros
            torch.testing.assert_close(file.build()(images), encoder(images))


def test_released_files_build_themselves(repository_root: Path) -> None:
    folder = repository_root / "bundles" / "afire" / "released"
    expected = Preprocessing(image_size=64, standardize=True)
    detector = ModelFile(folder / "detector.safetensors", "anomaly detector")
    assert detector.preprocessing == expected
    assert detector.build().views == 5
    assert ModelFile(str(find_weights("released"))).preprocessing == expected
    assert ModelFile(str(find_weights("released"))).build()(torch.rand(1, 1, 64, 64)).shape == (
        1,
        64,
        192,
    )


def test_every_file_that_comes_with_the_package_says_how_to_build_its_network(
    repository_root: Path,
) -> None:
    files = [
        *repository_root.glob("bundles/*/models/model.pt"),
        *repository_root.glob("bundles/*/released/*.*"),
    ]
    described = [path for path in files if path.suffix in (".pt", ".safetensors")]
    assert len(described) >= 14
    for path in described:
        description = read_description(path)
        assert description is not None, path
        assert description.format == 1
        if description.network is not None:
            # networks of this package's own checks have classes of their own
            ModelFile(path).build()


def test_a_network_of_another_library_is_described_without_definition() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3))
    description = describe(network, preprocessing={"standardize": True}, class_names=["lung"])
    assert (description.network, description.preprocessing, description.class_names) == (
        None,
        None,
        ["lung"],
    )


def test_a_network_that_is_of_another_package_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert describe(torch.nn.Linear(2, 1)).network is None
    assert "torch.nn.modules.linear.Linear is of another package" in caplog.text
    assert "network_def" in caplog.text
