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
    LandmarkPair,
    PairStudy,
    StudyImages,
    pair_correspondence,
    read_landmark_pairs,
    read_study_images,
)
from monai_afire.apps.studies.study import NothingToCompareError
from monai_afire.networks import RadiographEncoder
from monai_afire.transforms import LoadRadiographd, fit_images


class BlockColors(RadiographEncoder):
    """The mean color of each patch of 4 pixels: a feature whose nearest neighbor can be told by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.set_interface(3, (32, 32), (4, 4), 3, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(images, 4).flatten(2).transpose(1, 2)


def test_a_shifted_picture_is_found_where_it_went(tmp_path: Path) -> None:
    pixels = (
        np.random.default_rng(0)
        .integers(0, 255, (16, 16, 3), dtype=np.uint8)
        .repeat(4, 0)
        .repeat(4, 1)
    )
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
    [read] = read_landmark_pairs([pair], transform)
    np.testing.assert_allclose(read.landmarks[1, 0] - read.landmarks[0, 0], [0, 4], atol=1e-5)
    table = pair_correspondence(BlockColors(), [read, read], progress=False)
    assert table["pair"].tolist() == [0, 0, 1, 1]
    # a place between blocks has the mean of their colors; the nearest cell is at most half a patch off on each axis
    assert (table["error"] <= 2.9).all()
    np.testing.assert_allclose(table["error_same_place"], 4.0, atol=1e-4)


def test_what_is_no_pair_is_refused() -> None:
    image = torch.rand(1, 8, 8)
    with pytest.raises(ValueError, match="has no image_2 and no landmarks_2"):
        read_landmark_pairs([{"image": image, "landmarks": [[1, 1]]}], dict)
    unequal = {
        "image": image,
        "image_2": image,
        "landmarks": [[1, 1]],
        "landmarks_2": [[1, 1], [2, 2]],
    }
    with pytest.raises(ValueError, match="list each landmark in both"):
        read_landmark_pairs([unequal], dict)
    with pytest.raises(ValueError, match="no pair"):
        pair_correspondence(BlockColors(), [], progress=False)
    assert LandmarkPair(torch.zeros(2, 1, 8, 8), torch.zeros(2, 1, 2)).images.shape[0] == 2


def shifted(shift: int, group: str) -> dict:
    """A pair whose places all move by as many pixels along the rows."""
    image, places = torch.rand(3, 32, 32), [[6.0, 6.0], [14.0, 10.0]]
    moved = [[row, column + shift] for row, column in places]
    second = image.roll(shift, dims=2)
    return {
        "image": image,
        "image_2": second,
        "landmarks": places,
        "landmarks_2": moved,
        "group": group,
    }


def test_the_study_compares_encoders_with_copying() -> None:
    items = [shifted(4, "near"), shifted(8, "far"), {"image": torch.rand(3, 32, 32)}]
    result = PairStudy(items, dict, stride=4, progress=False)(
        {"blocks": BlockColors()}, StudyImages(torch.rand(2, 1, 8, 8))
    )
    assert list(result.table.index) == ["blocks", "raw pixels", "same place"]
    copied = result.table.loc["same place"]
    assert copied["error"] == copied["median_error"] == pytest.approx(6.0)
    assert copied["error_fraction"] == pytest.approx(6 / 32)
    assert "2 pairs with 4 places" in result.question
    [groups] = result.details.values()
    assert groups["same place"].to_dict() == pytest.approx({"near": 4.0, "far": 8.0})
    with pytest.raises(NothingToCompareError, match="no item has an image_2"):
        PairStudy(items[2:], dict)({"blocks": BlockColors()}, StudyImages(torch.rand(2, 1, 8, 8)))


def test_places_of_pairs_are_no_landmarks_of_the_other_studies() -> None:
    """They are other places, and other numbers of them, in each pair."""
    items = [
        shifted(4, "near"),
        {**shifted(4, "near"), "landmarks": [[1.0, 1.0]], "landmarks_2": [[1.0, 5.0]]},
    ]
    assert read_study_images(items, dict, dataset_dir="fundus", progress=False).landmarks is None
