# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the studies of features have in common: any encoders side by side, unknown landmarks."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pandas as pd
import pytest
import torch
from apps.studies.stub_encoders import PositionEncoder, tiny_vit

from monai_afire.apps.studies import (
    StudyImages,
    StudyResult,
    composition_study,
    correspondence_study,
    cosegmentation_study,
    image_map_study,
    landmark_map_study,
    position_map_study,
    symmetry_study,
)
from monai_afire.visualize.figures import figure_to_array

STUDIES = (
    position_map_study,
    landmark_map_study,
    image_map_study,
    composition_study,
    correspondence_study,
    symmetry_study,
    cosegmentation_study,
)


def known_images(number: int = 6) -> StudyImages:
    generator = torch.Generator().manual_seed(0)
    masks = torch.zeros(number, 2, 32, 32, dtype=torch.bool)
    masks[:, 0, 8:24, :16], masks[:, 1, 8:24, 16:] = True, True
    return StudyImages(
        torch.rand(number, 1, 32, 32, generator=generator),
        group=[("normal", "nodule $x_1$")[index % 2] for index in range(number)],
        landmarks=6 + 20 * torch.rand(number, 3, 2, generator=generator),
        landmark_names=["hilum_right", "hilum_left", "carina"],
        masks=masks,
        mask_names=["lung_right", "lung_left"],
    )


def check(result: StudyResult, encoders: Collection[str]) -> None:
    assert list(result.table.index[: len(encoders)]) == list(encoders)
    assert result.table.index.is_unique
    for figure in result.figures.values():
        assert figure_to_array(figure).std() > 0


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__)
def test_any_encoders_side_by_side(study: Callable[..., StudyResult]) -> None:
    encoders = {"untrained": tiny_vit(32, 8), "another patch": tiny_vit(32, 16)}
    images = known_images()
    options = {"reference": 1} if study in (correspondence_study, cosegmentation_study) else {}
    result = study(encoders, images, **options)
    check(result, encoders)
    assert study is composition_study or "raw pixels" in result.table.index
    pd.testing.assert_frame_equal(result.table, study(encoders, images, **options).table)


@pytest.mark.parametrize(
    "study", [landmark_map_study, correspondence_study, symmetry_study], ids=lambda s: s.__name__
)
def test_unknown_landmarks(study: Callable[..., StudyResult]) -> None:
    images = known_images()
    assert images.landmarks is not None
    images.landmarks[0] = torch.nan
    images.landmarks[:, 1] = torch.nan
    images.landmarks[2, 2] = torch.nan
    encoders = {"positions": PositionEncoder((32, 32), (8, 8))}
    result = study(encoders, images)
    check(result, encoders)
