# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders by their words: what is built, what tells two of them apart, and words that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from monai_afire.apps.compare import (
    ComparedEncoder,
    compared_encoder,
    encode_images,
    encoders,
)
from monai_afire.networks import TransferClassifier, ViTEncoder, save_network
from monai_afire.networks.nets.raw_pixels import RawPixels


def classifier(path: Path, seed: int = 0, channels: int = 1) -> TransferClassifier:
    torch.manual_seed(seed)
    encoder = ViTEncoder(
        channels, img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2
    )
    network = TransferClassifier(encoder, num_classes=1)
    save_network(network, path, {"preprocessing": {"image_size": 32, "standardize": True}})
    return network


def test_a_file_gives_its_encoder_and_its_preparation(tmp_path: Path) -> None:
    path = tmp_path / "lr=0.1" / "model.pt"  # the sign that ends a name
    path.parent.mkdir()
    network = classifier(path)
    compared = compared_encoder(f"mine={path}", "image")
    assert (compared.name, compared.standardize) == ("mine", True)
    assert compared_encoder(str(path), "image").name == str(path)
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(compared.encoder(images), network.encoder.eval()(images))


def test_random_weights_are_always_the_same_ones(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    classifier(path, seed=3)
    image = torch.rand(1, 1, 128, 128)
    words = ("untrained", "released:random", "released", f"{path}", f"{path}:random")
    first, second = ([compared_encoder(word).encode(image) for word in words] for _ in range(2))
    assert all((one == other).all() for one, other in zip(first, second, strict=True))
    assert (first[0] == first[1]).all()
    assert (first[0] != first[2]).any()
    assert (first[3] != first[4]).any()
    state = torch.get_rng_state()
    compared_encoder("untrained")
    torch.testing.assert_close(torch.get_rng_state(), state)


class Counting(RawPixels):
    """Counts what it encodes."""

    encoded = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.encoded += len(images)
        return super().forward(images)


def counting(name: str = "counting", side: int = 8) -> ComparedEncoder:
    pixels = Counting(1, (32, 32), (side, side))
    return ComparedEncoder(name, pixels, standardize=False, field_of_view="image")


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(encoders, "_BATCH", 4)
    monkeypatch.setattr(encoders, "_SIDE", 64)
    random = np.random.default_rng(0)
    for number in range(10):
        Image.fromarray(random.integers(0, 255, (64, 64), np.uint8)).save(
            tmp_path / f"{number}.png"
        )
    return [{"image": str(tmp_path / f"{number}.png")} for number in range(10)]


def test_each_image_is_encoded_once_in_its_order_and_a_lesion_is_painted(
    items: list[dict[str, Any]], tmp_path: Path
) -> None:
    plain, painter = counting(), counting()
    found = encode_images(items, [plain], tmp_path, "plain")["counting"]
    for row in (0, 9):
        pixels = np.asarray(Image.open(items[row]["image"])) / np.float32(255)
        expected = counting().encode(torch.from_numpy(pixels)[None, None])[0]
        np.testing.assert_allclose(found[row].astype(float), expected, atol=2e-3)
    lesion = {"kind": "SoftNodule", "contrast": 0.5, "size": 0.3, "seed": 1}
    altered = [{**item, "lesion": lesion} for item in items]
    painted = encode_images(altered, [painter], tmp_path, "painted")["counting"]
    assert (painted > found).any((1, 2)).all()
    assert (plain.encoder.encoded, painter.encoder.encoded) == (10, 10)
