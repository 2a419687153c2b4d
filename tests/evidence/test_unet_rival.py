# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The UNet beside the bundles of dense prediction: its list of landmarks, and its scores of networks that are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from PIL import Image
from torch import nn

from tests.evidence.jsrt_correspondence import CONTOUR_POINTS
from tests.evidence.real_tasks import listed_contour_points
from tests.evidence.unet_rival import TASKS, montgomery_dice


class Constant(nn.Module):
    """Gives the same maps for every image."""

    def __init__(self, maps: torch.Tensor) -> None:
        super().__init__()
        self.maps = maps

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.maps.expand(len(images), *self.maps.shape)


def test_every_sixth_contour_point_becomes_a_landmark(tmp_path: Path) -> None:
    folder = tmp_path / "jsrt"
    folder.mkdir()
    contours = {
        organ: [[n, 2 * n] for n in range(points)] for organ, points in CONTOUR_POINTS.items()
    }
    clavicles = {"left_clavicle": [[0, 0]]}
    splits = {"a": "train", "b": "test", "c": "train", "d": "train"}
    entries = {
        name: {"published_split": split, "contours": contours | clavicles}
        for name, split in splits.items()
    }
    entries["d"]["contours"] = {}
    (folder / "contours.json").write_text(json.dumps(entries))
    listed_contour_points(tmp_path, tmp_path / "lists.json")
    found = json.loads((tmp_path / "lists.json").read_text())
    assert {
        key: [item["patient_id"] for item in found[key]]
        for key in ("training", "validation", "test")
    } == {
        "training": ["c"],
        "validation": ["a"],
        "test": ["b"],
    }
    item = found["test"][0]
    assert item["image"] == str(Path("jsrt/images/b.png"))
    assert len(item["landmarks"]) == len(found["landmark_names"]) == 8 + 9 + 5
    assert item["landmarks"][9] == [6, 12]
    assert found["landmark_names"][9] == "left_lung 6"


def test_the_radial_error_is_a_share_of_the_side() -> None:
    maps = torch.zeros(2, 8, 8)
    maps[0, 2, 2] = maps[1, 5, 5] = 1.0
    truth = torch.tensor([[[2.0, 2.0], [5.0, 1.0]], [[2.0, 2.0], [torch.nan, torch.nan]]])
    parser = ConfigParser({"window": 3, "image_size": 8})
    batch = {"image": torch.zeros(2, 1, 8, 8), "landmarks": truth}
    # errors of 0, 4 and 0 pixels of 8
    assert TASKS["landmarks"].score(parser, Constant(maps), [batch])["mean"] == pytest.approx(
        -100 * 4 / 8 / 3
    )  # type: ignore[arg-type]


def test_dice_of_montgomery_is_of_both_lungs_in_the_pixels_of_the_file(tmp_path: Path) -> None:
    truth = np.zeros((32, 32), np.uint8)
    truth[:, :8] = truth[:, 24:] = 255
    for part, picture in (
        ("images", np.arange(1024, dtype=np.uint8).reshape(32, 32)),
        ("lungs", truth),
    ):
        (tmp_path / "montgomery" / part).mkdir(parents=True)
        Image.fromarray(picture).save(tmp_path / "montgomery" / part / "one.png")
    maps = torch.full((3, 16, 16), -1.0)
    maps[0, :, :4] = maps[1, :, 12:] = maps[2] = 1.0  # right lung, left lung, heart
    assert montgomery_dice(Constant(maps), tmp_path, 16) == pytest.approx(1.0)
    maps[1] = -1.0
    assert montgomery_dice(Constant(maps), tmp_path, 16) == pytest.approx(2 / 3)
