# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmarks of pairs of images, in FIRE's form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from monai.transforms import Compose
from PIL import Image

from monai_afire.apps.studies import (
    StudyImages,
    pair_study,
    read_study_images,
)
from monai_afire.apps.studies.study import NothingToCompareError
from monai_afire.networks import RadiographEncoder
from monai_afire.transforms import LoadRadiographd, fit_images


class BlockColors(RadiographEncoder):
    """The mean color of each patch of 4 pixels: a feature whose nearest neighbor can be told by hand."""

    def __init__(self) -> None:
        super().__init__(3, (32, 32), (4, 4), 3, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(images, 4).flatten(2).transpose(1, 2)


ENCODERS = {"blocks": BlockColors()}
IMAGES = StudyImages(torch.rand(2, 1, 8, 8))  # not used


def test_a_shifted_picture_is_found_where_it_went(tmp_path: Path) -> None:
    blocks = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    pixels = blocks.repeat(4, 0).repeat(4, 1)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(np.roll(pixels, 8, axis=1)).save(tmp_path / "b.png")
    # two blocks of the file, of which the input has half the size: the place moves by 8 pixels, 4 of the input
    pair = {
        "image": str(tmp_path / "a.png"),
        "image_2": str(tmp_path / "b.png"),
        "landmarks": [[35.5, 19.5], [11.5, 27.5], None],
        "landmarks_2": [[35.5, 27.5], [11.5, 35.5], [1.0, 1.0]],
    }
    transform = Compose([LoadRadiographd("image", channels=3), fit_images("image", 32)])
    table = pair_study(ENCODERS, IMAGES, [pair, pair], transform).table
    # a place between blocks has the mean of their colors; the nearest cell is at most half a patch off on each axis
    assert table.loc["blocks", "error"] <= 2.9
    assert table.loc["same place", "error"] == pytest.approx(4, abs=1e-4)


@pytest.mark.parametrize("moved", [None, [[1, 1], [2, 2]]])
def test_what_is_no_pair(moved: list | None) -> None:
    image = torch.rand(1, 8, 8)
    item = {"image": image, "image_2": image, "landmarks": [[1, 1]], "landmarks_2": moved}
    with pytest.raises(ValueError, match="landmark"):
        pair_study(ENCODERS, IMAGES, [item], dict)


def shifted(shift: int, group: str) -> dict:
    """A pair whose places all move by as many pixels along the rows."""
    image = torch.rand(3, 32, 32)
    return {
        "image": image,
        "image_2": image.roll(shift, dims=2),
        "landmarks": [[6.0, 6.0], [14.0, 10.0]],
        "landmarks_2": [[6.0, 6.0 + shift], [14.0, 10.0 + shift]],
        "group": group,
    }


def test_the_study_compares_encoders_with_copying() -> None:
    items = [shifted(4, "near"), shifted(8, "far"), {"image": torch.rand(3, 32, 32)}]
    result = pair_study(ENCODERS, IMAGES, items, dict, stride=4)
    assert list(result.table.index) == ["blocks", "raw pixels", "same place"]
    copied = result.table.loc["same place"]
    assert copied["error"] == copied["median_error"] == pytest.approx(6.0)
    assert copied["error_fraction"] == pytest.approx(6 / 32)
    [groups] = result.details.values()
    assert groups["same place"].to_dict() == pytest.approx({"near": 4.0, "far": 8.0})
    with pytest.raises(NothingToCompareError, match="image_2"):
        pair_study(ENCODERS, IMAGES, items[2:], dict)


def test_places_of_pairs_are_no_landmarks_of_the_other_studies() -> None:
    """They are other places, and other numbers of them, in each pair."""
    other = {"landmarks": [[1.0, 1.0]], "landmarks_2": [[1.0, 5.0]]}
    items = [shifted(4, "near"), {**shifted(4, "near"), **other}]
    assert read_study_images(items, dict, dataset_dir="fundus").landmarks is None
