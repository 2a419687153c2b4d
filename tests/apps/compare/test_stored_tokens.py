# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tokens of images, in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from monai_afire.apps.compare import ComparedEncoder, encode_images
from monai_afire.apps.compare import stored_tokens as module
from monai_afire.networks.nets.raw_pixels import RawPixels


class Counting(RawPixels):
    """Counts what it encodes."""

    encoded = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.encoded += len(images)
        return super().forward(images)


def counting(name: str = "counting", side: int = 8) -> ComparedEncoder:
    return ComparedEncoder(
        name, Counting(1, (32, 32), (side, side)), standardize=False, field_of_view="image"
    )


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(module, "_BATCH", 4)
    monkeypatch.setattr(module, "_SIDE", 64)
    random = np.random.default_rng(0)
    for number in range(10):
        Image.fromarray(random.integers(0, 255, (64, 64), np.uint8)).save(
            tmp_path / f"{number}.png"
        )
    return [{"image": str(tmp_path / f"{number}.png")} for number in range(10)]


def test_tokens_are_those_of_the_images_in_their_order(
    items: list[dict[str, Any]], tmp_path: Path
) -> None:
    found = encode_images(items, [counting()], tmp_path, "")["counting"]
    for row in (0, 9):
        image = torch.from_numpy(np.asarray(Image.open(items[row]["image"])) / np.float32(255))[
            None, None
        ]
        expected = counting().encode(image)[0]
        np.testing.assert_allclose(found[row].astype(float), expected, atol=2e-3)


def test_each_image_is_encoded_once_and_a_lesion_is_painted(
    items: list[dict[str, Any]], tmp_path: Path
) -> None:
    plain, painter = counting(), counting()
    found = encode_images(items, [plain], tmp_path, "plain")["counting"]
    lesion = {"kind": "SoftNodule", "contrast": 0.5, "size": 0.3, "seed": 1}
    painted = encode_images(
        [{**item, "lesion": lesion} for item in items], [painter], tmp_path, "painted"
    )["counting"]
    assert (painted > found).any((1, 2)).all()
    assert (plain.encoder.encoded, painter.encoder.encoded) == (10, 10)


def test_no_images_are_no_tokens(tmp_path: Path) -> None:
    assert encode_images([], [counting()], tmp_path, "")["counting"].shape == (0, 16, 64)
