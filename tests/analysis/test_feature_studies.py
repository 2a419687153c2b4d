# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The studies as the report runs them, on encoders whose features are known."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import torch
from stub_encoders import PatchMeanEncoder, PositionEncoder, anatomy_images

from monai_afire.analysis import (
    CorrespondenceStudy,
    CosegmentationStudy,
    ImageMapStudy,
    LandmarkMapStudy,
    PositionMapStudy,
    SymmetryStudy,
)
from monai_afire.analysis.images.study_images import StudyImages
from monai_afire.networks import ViTEncoder
from monai_afire.visualize.figures import figure_to_array

STUDIES = (
    PositionMapStudy,
    LandmarkMapStudy,
    ImageMapStudy,
    CorrespondenceStudy,
    SymmetryStudy,
    CosegmentationStudy,
)


def known_images(number: int = 6, channels: int = 1):
    generator = torch.Generator().manual_seed(0)
    masks = torch.zeros(number, 2, 32, 32, dtype=torch.bool)
    masks[:, 0, 8:24, :16], masks[:, 1, 8:24, 16:] = True, True
    return StudyImages(
        torch.rand(number, channels, 32, 32, generator=generator),
        group=[("normal", "nodule $x_1$")[index % 2] for index in range(number)],
        landmarks=6 + 20 * torch.rand(number, 3, 2, generator=generator),
        landmark_names=["hilum_right", "hilum_left", "carina"],
        masks=masks,
        mask_names=["lung_right", "lung_left"],
    )


def check(result, encoders):
    assert result.title
    assert "{" not in result.question
    assert list(result.table.index[: len(encoders)]) == list(encoders)
    assert result.table.index.is_unique
    json.loads(result.table.to_json(orient="index"))
    for figure in result.figures.values():
        assert figure_to_array(figure).std() > 0
    assert all(isinstance(table, pd.DataFrame) for table in result.details.values())


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__)
@pytest.mark.parametrize("number", [2, 6])
def test_any_encoders_side_by_side(study, number):
    encoders = {
        name: ViTEncoder(img_size=32, patch_size=patch, hidden_size=24, num_layers=1, num_heads=2)
        for name, patch in (("untrained", 8), ("another patch", 16))
    }
    images = known_images(number)
    assert images.missing(study.needs) == []
    options = {"reference": 1} if study in (CorrespondenceStudy, CosegmentationStudy) else {}
    result = study(progress=False, seed=1, **options)(encoders, images)
    check(result, [*encoders, "raw pixels"])
    if number > 2:
        again = study(progress=False, seed=1, **options)(encoders, images)
        pd.testing.assert_frame_equal(result.table, again.table)


@pytest.mark.parametrize("study", [LandmarkMapStudy, CorrespondenceStudy, SymmetryStudy], ids=lambda s: s.__name__)
def test_unknown_landmarks(study):
    images = known_images()
    images.landmarks[0] = torch.nan
    images.landmarks[:, 1] = torch.nan
    images.landmarks[2, 2] = torch.nan
    encoders = {"positions": PositionEncoder((32, 32), (8, 8))}
    result = study(progress=False)(encoders, images)
    check(result, encoders)


def test_names_and_positions():
    encoders = {"positions": PositionEncoder((32, 32), (8, 8))}
    result = PositionMapStudy(progress=False)(encoders, known_images())
    assert result.table.loc["positions", "purity"] == 1
    assert result.table.loc["positions", "silhouette"] == pytest.approx(1, abs=1e-6)
    assert result.table.loc["raw pixels", "purity"] < 0.5
    windows = LandmarkMapStudy(progress=False)(encoders, known_images(40))
    assert windows.table.loc["positions", "purity"] == pytest.approx(1 / 3, abs=0.1)


def test_anatomy_is_found_across_patients_and_views():
    generator = torch.Generator().manual_seed(0)
    shifts = 4 * torch.rand(4, 2, generator=generator) - 2
    landmarks = 22 + 20 * torch.rand(4, 2, generator=generator) + shifts[:, None]
    images = StudyImages(anatomy_images(shifts, (64, 64)), landmarks=landmarks)
    encoder = PatchMeanEncoder(4, (64, 64), (8, 8))
    result = CorrespondenceStudy(reference=2, stride=4, progress=False)({"anatomy": encoder}, images)
    found = result.table.filter(like="error_across").filter(regex="^(?!.*removed)")
    assert (found.loc["anatomy"] < 2.6).all()  # half of the stride
    assert found.loc["same place", "error_across_views"] > 5
    assert result.table.loc["anatomy", "stride"] == 4
    assert list(result.details["Across views: error of each landmark in pixels"].index) == ["1", "2", "3", "4"]


def test_symmetry_needs_partners():
    images = StudyImages(
        torch.rand(2, 1, 32, 32), landmarks=torch.full((2, 2, 2), 9.0), landmark_names=["carina", "aortic_knob"]
    )
    encoders = {"positions": PositionEncoder((32, 32), (8, 8))}
    with pytest.raises(ValueError, match="give pairs"):
        SymmetryStudy(progress=False)(encoders, images)
    table = SymmetryStudy(pairs=[[0, 1]], progress=False)(encoders, images).table
    assert table.loc["positions", "partner_found"] == 1  # it is the only other


def test_organs_as_features():
    masks = torch.zeros(5, 2, 32, 32, dtype=torch.bool)
    for number, start in enumerate((0, 16, 8, 0, 8)):
        masks[number, 0, start : start + 16, :16] = True
        masks[number, 1, start : start + 16, 16:] = True
    pixels = torch.cat([masks, ~masks.any(1, keepdim=True)], dim=1).float()
    images = StudyImages(pixels, masks=masks, mask_names=["right", "left"])
    encoder = PatchMeanEncoder(3, (32, 32), (8, 8))
    table = CosegmentationStudy(3, reference=2, progress=False)({"organs": encoder}, images).table
    assert table.loc["organs", ["mean_dice", "dice_right", "dice_left"]].tolist() == [1, 1, 1]
    assert table.loc["limit of the resolution", "mean_dice"] == 1
    assert table.loc["same place", "mean_dice"] < 0.8


def test_three_dimensions_without_pictures():
    masks = torch.zeros(4, 1, 16, 16, 16, dtype=torch.bool)
    masks[:, :, 4:12] = True
    images = StudyImages(torch.rand(4, 1, 16, 16, 16), masks=masks, mask_names=["organ"])
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=24, num_layers=1, num_heads=2, spatial_dims=3)
    result = CosegmentationStudy(3, reference=1, progress=False)({"volume": encoder}, images)
    check(result, ["volume"])
    assert len(result.figures) == 1
    check(PositionMapStudy(2, progress=False)({"volume": encoder}, images), ["volume"])
