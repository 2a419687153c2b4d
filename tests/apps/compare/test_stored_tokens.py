# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Each image is encoded once: an interrupted call goes on, and nothing is read for what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from monai_afire.apps.compare import ComparedEncoder, encode_images
from monai_afire.apps.compare import stored_tokens as module
from monai_afire.apps.evaluation.raw_pixels import RawPixels


class Counting(RawPixels):
    """Counts what it encodes, and can fail after some images."""

    encoded = 0
    limit = 10**9

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.encoded + len(images) > self.limit:
            raise KeyboardInterrupt
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


def test_an_interrupted_call_goes_on_and_equals_an_undisturbed_one(
    items: list[dict[str, Any]], tmp_path: Path
) -> None:
    whole = encode_images(items, [counting()], tmp_path, "")["counting"]
    (tmp_path / "again").mkdir()
    interrupted, resumed = counting(), counting()
    interrupted.encoder.limit = 5
    with pytest.raises(KeyboardInterrupt):
        encode_images(items, [interrupted], tmp_path / "again", "")
    found = encode_images(items, [resumed], tmp_path / "again", "")["counting"]
    np.testing.assert_array_equal(found, whole)
    assert (interrupted.encoder.encoded, resumed.encoder.encoded) == (4, 6)


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


def test_nothing_is_read_for_what_is_there(
    items: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = encode_images(items, [counting()], tmp_path, "")["counting"]
    monkeypatch.setattr(module, "LoadRadiographd", lambda key: pytest.fail("a file was read"))
    with pytest.raises(pytest.fail.Exception):
        encode_images(items[1:], [counting()], tmp_path, "")
    monkeypatch.undo()
    again = counting()
    np.testing.assert_array_equal(encode_images(items, [again], tmp_path, "")["counting"], first)
    assert again.encoder.encoded == 0


def test_a_new_encoder_leaves_the_others_alone(items: list[dict[str, Any]], tmp_path: Path) -> None:
    encode_images(items, [counting()], tmp_path, "")
    old, new = counting(), counting("new", side=16)
    encode_images(items, [old, new], tmp_path, "")
    assert (old.encoder.encoded, new.encoder.encoded) == (0, 10)


@pytest.mark.filterwarnings("ignore:.*is blank")
def test_a_changed_image_and_a_lesion_are_encoded_anew(
    items: list[dict[str, Any]], tmp_path: Path
) -> None:
    plain = encode_images(items, [counting()], tmp_path, "")["counting"].copy()
    lesion = {"kind": "SoftNodule", "contrast": 0.5, "size": 0.3, "seed": 1}
    painted = encode_images(
        [{**item, "lesion": lesion} for item in items], [counting()], tmp_path, ""
    )["counting"]
    assert (painted > plain).any((1, 2)).all()
    Image.fromarray(np.full((64, 64), 255, np.uint8)).save(items[0]["image"])
    changed = encode_images(items, [counting()], tmp_path, "")["counting"]
    assert not np.array_equal(changed[0], plain[0])
    np.testing.assert_array_equal(changed[1:], plain[1:])


def test_no_images_are_no_tokens(tmp_path: Path) -> None:
    assert encode_images([], [counting()], tmp_path, "")["counting"].shape == (0, 16, 64)
