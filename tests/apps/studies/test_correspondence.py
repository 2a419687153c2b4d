# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import torch
from apps.studies.stub_encoders import PatchMeanEncoder, anatomy_images

from monai_afire.apps.studies.correspondence import (
    label_pairs,
    landmark_correspondence,
    same_place_correspondence,
)
from monai_afire.apps.studies.features import cell_centers, dense_features
from monai_afire.apps.studies.regions import with_perturbations
from monai_afire.networks import ViTEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


def naive_table(
    encoder: RadiographEncoder,
    images: torch.Tensor,
    landmarks: torch.Tensor,
    reference: Sequence[int],
    stride: int,
    remove_position: bool,
) -> pd.DataFrame:
    """One pair and one landmark at a time."""
    maps = dense_features(encoder, images, stride).double().numpy()
    if remove_position:
        maps = maps - maps.mean(0)
    centers = [axis.numpy() for axis in cell_centers(encoder, stride)]
    rows = []
    for first in reference:
        for other in range(len(images)):
            for number in range(landmarks.shape[1]):
                place, truth = landmarks[first, number].numpy(), landmarks[other, number].numpy()
                if other == first or np.isnan(place).any() or np.isnan(truth).any():
                    continue
                channels = []
                for channel in maps[first]:
                    columns = [np.interp(place[1], centers[1], line) for line in channel]
                    channels.append(np.interp(place[0], centers[0], columns))
                wanted = np.asarray(channels) / np.linalg.norm(channels)
                best, found = -2.0, None
                for i, j in np.ndindex(*maps.shape[2:]):
                    feature = maps[other, :, i, j]
                    cosine = wanted @ feature / np.linalg.norm(feature)
                    if cosine > best:
                        best, found = cosine, (centers[0][i], centers[1][j])
                error = np.hypot(found[0] - truth[0], found[1] - truth[1])
                rows.append(
                    (first, other, number, error, error / max(encoder.img_size), *found, best)
                )
    names = "reference query landmark error error_fraction row column similarity"
    return pd.DataFrame(rows, columns=names.split())


@pytest.mark.parametrize("remove_position", [False, True])
def test_like_one_pair_at_a_time(remove_position: bool) -> None:
    torch.manual_seed(3)
    encoder = ViTEncoder(img_size=(24, 32), patch_size=8, hidden_size=12, num_layers=1, num_heads=2)
    images = torch.rand(5, 1, 24, 32)
    landmarks = torch.tensor([23.0, 31.0]) * torch.rand(5, 4, 2)
    landmarks[1, 2], landmarks[3, 0, 1] = torch.nan, torch.nan
    landmarks[0, 1] = torch.tensor([-0.5, 31.5])  # the corner, beyond the last centers
    reference = [3, 0]
    table = landmark_correspondence(
        encoder, images, landmarks, references=reference, stride=4, remove_position=remove_position
    )
    expected = naive_table(encoder, images, landmarks, reference, 4, remove_position)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False, rtol=1e-4)


def test_the_baseline_by_hand() -> None:
    landmarks = torch.tensor(
        [[[0.0, 0.0], [5.0, 5.0]], [[3.0, 4.0], [5.0, 5.0]], [[6.0, 8.0], [torch.nan, 5.0]]]
    )
    table = same_place_correspondence(landmarks, (20, 10), references=[0, 1])
    assert table["reference"].tolist() == [0, 0, 0, 1, 1, 1]
    assert table["query"].tolist() == [1, 1, 2, 0, 0, 2]
    assert table["landmark"].tolist() == [0, 1, 0, 0, 1, 0]
    assert table["error"].tolist() == [5, 0, 10, 5, 0, 5]
    np.testing.assert_allclose(table["error_fraction"], table["error"] / 20)


def test_features_that_know_the_anatomy_find_it_in_all_perturbations_where_copying_fails() -> None:
    generator = torch.Generator().manual_seed(0)
    shifts = 4 * torch.rand(3, 2, generator=generator) - 2
    landmarks = 24 + 16 * torch.rand(5, 2, generator=generator) + shifts[:, None]
    images, places = with_perturbations(anatomy_images(shifts, (64, 64)), landmarks)
    encoder = PatchMeanEncoder(4, (64, 64), (4, 4))
    found = landmark_correspondence(encoder, images, places, [0, 1])
    found = label_pairs(found, 3)
    assert found["across"].value_counts().to_dict() == {
        "patients": 20,
        "perturbations": 30,
        "patients_and_perturbations": 60,
    }
    assert found.groupby("across")["error"].mean().max() < 2.5  # half of a patch of 4 pixels
    copied = label_pairs(same_place_correspondence(places, (64, 64), [0, 1]), 3)
    assert copied[copied["across"] == "perturbations"]["error"].mean() > 4


def test_landmarks_outside_of_the_image() -> None:
    with pytest.raises(ValueError, match="landmark"):
        same_place_correspondence(torch.full((4, 2, 2), 16.0), (16, 16), references=[0])
