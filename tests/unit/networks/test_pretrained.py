# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders that are ready to use, against the steps of a bundle and against timm."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from PIL import Image

from monai_afire.networks import (
    EfficientNetLiteEncoder,
    TransferClassifier,
    build_encoder,
    load_encoder,
    save_network,
    seen_images,
)
from monai_afire.networks.nets.encoders import efficientnet_lite_encoder
from unit.tiny_networks import tiny_vit

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def radiograph(tmp_path: Path) -> Path:
    """Smooth, with 12 of 16 bits."""
    rows, columns = np.mgrid[0:150, 0:110]
    values = 2000 + 1500 * np.sin(rows / 17) * np.cos(columns / 13)
    path = tmp_path / "chest.png"
    Image.fromarray(values.astype(np.uint16)).save(path)
    return path


def bundle_input(path: Path, **settings: Any) -> torch.Tensor:
    """What the inference of the classification bundle makes of a file."""
    parser = ConfigParser()
    parser.read_config(ROOT / "bundles/radiograph_classification/configs/inference.json")
    parser["input"] = settings
    return parser.get_parsed_content("preprocessing")({"image": str(path)})["image"]


@pytest.mark.parametrize(("name", "size"), [("released", 64), ("released_cnn", 128)])
def test_images_are_prepared_as_in_a_bundle(radiograph: Path, name: str, size: int) -> None:
    encoder, transform = load_encoder(name)
    expected = bundle_input(radiograph, image_size=size, channels=1, standardize=True)
    image = transform(radiograph)
    assert type(image) is torch.Tensor
    torch.testing.assert_close(image, torch.as_tensor(expected), rtol=0, atol=0)
    assert encoder(image[None]).shape == (1, encoder.grid_size[0] ** 2, encoder.hidden_size)
    assert not encoder.training


def test_a_file_and_what_is_in_it_give_the_same(radiograph: Path) -> None:
    _, transform = load_encoder("released")
    with Image.open(radiograph) as opened:
        pixels = np.array(opened)
        expected = transform(radiograph)
        for given in (str(radiograph), opened, pixels, pixels[None], torch.from_numpy(pixels)):
            torch.testing.assert_close(transform(given), expected)


def test_a_file_of_a_run_says_how_its_images_are_prepared(radiograph: Path, tmp_path: Path) -> None:
    network = TransferClassifier(tiny_vit(in_channels=3), num_classes=1).eval()
    for standardize in (False, True):
        path = tmp_path / f"{standardize}.pt"
        settings = {"image_size": 32, "standardize": standardize}
        save_network(network, path, {"preprocessing": settings})
        loaded, transform = load_encoder(path)
        expected = torch.as_tensor(bundle_input(radiograph, channels=3, **settings))
        torch.testing.assert_close(transform(radiograph), expected, rtol=0, atol=0)
        torch.testing.assert_close(loaded(expected[None]), network.encoder(expected[None]))


def test_imagenet_is_a_name_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = EfficientNetLiteEncoder().state_dict()
    asked = []

    def state_dict(in_channels: int) -> dict[str, torch.Tensor]:
        asked.append(in_channels)
        return weights

    place = f"{efficientnet_lite_encoder.__name__}.imagenet_state_dict"
    monkeypatch.setattr(place, state_dict)
    encoder, transform = load_encoder("imagenet")
    assert transform(np.random.default_rng(0).random((300, 200))).shape == (1, 224, 224)
    torch.testing.assert_close(encoder.state_dict(), weights)
    own = tiny_vit(img_size=96, patch_size=32)
    built = build_encoder("imagenet", own)
    assert (built.img_size, asked) == ((96, 96), [1, 1])
    build_encoder("imagenet", own, pretrained=False)
    assert asked == [1, 1]


@pytest.mark.parametrize("trained_on", ["phantoms", "radiographs"])
def test_an_encoder_of_phantoms_is_loaded_with_a_warning(tmp_path: Path, trained_on: str) -> None:
    path = save_network(tiny_vit(), tmp_path / "model.pt", {"trained_on": trained_on})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_encoder(path)
    assert any("phantoms alone" in str(each.message) for each in caught) == (
        trained_on == "phantoms"
    )


def test_statistics_of_phantoms_know_no_radiographs_whatever_the_encoder_knows(
    tmp_path: Path,
) -> None:
    path = save_network(tiny_vit(), tmp_path / "model.pt", {"trained_on": "phantoms"})
    assert seen_images(path, "radiographs") == "phantoms"
    assert seen_images("released_cnn", "phantoms") == "phantoms"
    assert seen_images("released_cnn", "radiographs") == "radiographs"
    assert seen_images(None, "radiographs") == "radiographs"


@pytest.mark.parametrize("bundle", ["classification", "segmentation", "landmarks"])
@pytest.mark.parametrize(("is_frozen", "trained_on"), [(True, "phantoms"), (False, "radiographs")])
def test_a_frozen_encoder_of_phantoms_knows_phantoms_alone(
    tmp_path: Path, bundle: str, is_frozen: bool, trained_on: str
) -> None:
    encoder = tiny_vit()
    path = save_network(encoder, tmp_path / "model.pt", {"trained_on": "phantoms"})
    config = json.loads((ROOT / f"bundles/radiograph_{bundle}/configs/train.json").read_text())
    network: Any = {"_target_": "monai_afire.networks.TransferClassifier", "num_classes": 1}
    network |= {"encoder": "@encoder", "freeze_encoder": is_frozen}
    parser = ConfigParser(
        {
            "encoder": encoder,
            "start_weights": str(path),
            "network_def": network,
            "train": {"dataset": {"data": [{"image": "a.dcm"}]}},
            "trained_on": config["train"]["run"]["description"]["trained_on"],
        },
        globals={"monai_afire": "monai_afire"},
    )
    assert parser.get_parsed_content("trained_on") == trained_on
