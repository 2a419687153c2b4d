# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reading a datalist: what it knows of an image is moved as the image was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.transforms import Compose, Resized
from PIL import Image

from monai_afire.apps.studies import native_size, read_study_images
from monai_afire.apps.studies.images import disease_set
from monai_afire.apps.studies.study import NothingToCompareError
from monai_afire.data import load_radiograph_datalist
from monai_afire.data.phantom import export_phantom
from monai_afire.transforms import LoadMasksd, LoadRadiographd

READ = Compose(
    [
        LoadRadiographd(keys="image"),
        LoadMasksd(keys="organs", allow_missing_keys=True),
        Resized(
            keys=["image", "organs"],
            spatial_size=(32, 32),
            mode=["area", "nearest"],
            allow_missing_keys=True,
        ),
    ]
)


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phantom")
    return export_phantom(folder, {"test": 6}, image_size=64)


def test_phantom_has_everything(phantom: Path) -> None:
    items = load_radiograph_datalist(None, phantom, "test")
    images = read_study_images(items, READ)
    assert images.image.shape == (6, 1, 32, 32)
    assert images.masks.shape == (6, 5, 32, 32)
    assert images.masks.dtype == torch.bool
    assert len(images.mask_names) == 5
    assert images.landmarks.shape == (6, len(images.landmark_names), 2)
    expected = (torch.tensor([item["landmarks"] for item in items]) + 0.5) / 2 - 0.5
    torch.testing.assert_close(images.landmarks, expected)
    for item, boxes, group in zip(items, images.boxes, images.group, strict=True):
        assert len(boxes) == len(item["boxes"])
        assert (group == "normal") == (len(boxes) == 0)
        for box, (x, y, width, height) in zip(boxes, item["boxes"], strict=True):
            assert box.tolist() == [y / 2, x / 2, height / 2, width / 2]


def test_native_pixels_are_read_again(phantom: Path) -> None:
    items = load_radiograph_datalist(None, phantom, "test")
    native = Compose(
        [LoadRadiographd(keys="image"), Resized(keys="image", spatial_size=(64, 64), mode="area")]
    )
    images = read_study_images(items, READ, native=native, max_images=3)
    assert images.native is not None
    assert torch.equal(
        images.native[1], LoadRadiographd("image")(dict(items[2]))["image"].as_tensor()
    )
    torch.testing.assert_close(
        images.detailed_landmarks()[1], torch.tensor(items[2]["landmarks"]).float()
    )
    assert native_size((224, 448)) == [512, 1024]


def test_own_names_of_a_datalist(tmp_path: Path) -> None:
    for name in "ab":
        Image.fromarray(np.tile(np.arange(40, dtype=np.uint8) * 5, (40, 1))).save(
            tmp_path / f"{name}.png"
        )
    entries = [
        {"image": "a.png", "label": [0, 1], "landmarks": [[3, 4], None]},
        {"image": "b.png", "label": [1, 1]},
    ]
    content = {
        "labels": ["mass", "effusion"],
        "landmark_names": ["carina", "apex"],
        "test": entries,
    }
    (tmp_path / "list.json").write_text(json.dumps(content))
    items = load_radiograph_datalist(None, tmp_path / "list.json", "test")
    images = read_study_images(items, READ, datalist=str(tmp_path / "list.json"))
    assert images.group == ["effusion", "several findings"]
    assert images.landmark_names == ["carina", "apex"]
    assert images.landmarks.isnan().sum() == 2 * 3
    with pytest.raises(NothingToCompareError, match="masks"):
        images.known("masks")


@pytest.mark.parametrize(
    ("item", "group"),
    [
        ({"group": "ICU", "label": [1, 0]}, "ICU"),
        ({"label": [0, 0]}, "normal"),
        ({"label": [1, 0]}, "mass"),
        ({"label": [None, -1]}, "uncertain"),
        ({"abnormal": 1, "label": [1, 0, 0]}, "abnormal"),
        ({}, None),
    ],
)
def test_disease_sets(item: dict, group: str | None) -> None:
    assert disease_set(item, ["mass", "effusion"]) == group
