# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

"""Token features: batch by batch as in one pass, at positions, around landmarks, of whole images."""

from __future__ import annotations

import pytest
import torch
from apps.studies.stub_encoders import PatchMeanEncoder, PositionEncoder
from tqdm.auto import tqdm

from monai_afire.apps.studies.features.tokens import (
    image_features,
    landmark_features,
    position_features,
    spread_positions,
    token_features,
)
from monai_afire.apps.studies.grouping import group_separation
from monai_afire.networks import ViTEncoder


@pytest.fixture
def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 20])
def test_batches_are_those_of_one_pass(encoder: ViTEncoder, batch_size: int) -> None:
    images = torch.rand(7, 1, 16, 16, dtype=torch.float64)  # taken in the encoder's own precision
    encoder.train()
    with tqdm(total=7, disable=True) as bar:
        found = token_features(
            encoder, 7, lambda rows: images[rows], lambda tokens: tokens[:, 1:], batch_size, bar
        )
    assert encoder.training
    assert not found.requires_grad
    expected = encoder.eval()(images.float())
    torch.testing.assert_close(found, expected[:, 1:])
    torch.testing.assert_close(
        token_features(encoder, 7, lambda rows: images[rows], batch_size=batch_size),
        expected.mean(1),
    )


def test_each_picture_is_asked_for_once(encoder: ViTEncoder) -> None:
    asked: list[int] = []

    def pictures(rows: slice) -> torch.Tensor:
        asked.extend(range(rows.start, rows.stop))
        return torch.zeros(rows.stop - rows.start, 1, 16, 16)

    token_features(encoder, 8, pictures, batch_size=3)
    assert asked == list(range(8))


def test_no_picture_has_no_tokens(encoder: ViTEncoder) -> None:
    nothing = torch.empty(0, 1, 16, 16)
    assert token_features(encoder, 0, lambda rows: nothing[rows]).shape == (0, 12)
    assert token_features(
        encoder, 0, lambda rows: nothing[rows], lambda tokens: tokens[:, :2]
    ).shape == (0, 2, 12)


def test_positions_are_pure_where_features_are_positions() -> None:
    encoder = PositionEncoder((32, 40), (8, 8))
    positions, names = spread_positions(encoder.grid_size)
    features = position_features(
        encoder, torch.rand(7, 1, 32, 40), positions, batch_size=3, progress=False
    )
    found = group_separation(features.flatten(0, 1), names * 7)
    assert found["purity"] == 1
    assert found["silhouette"] == pytest.approx(1, abs=1e-6)
    assert len(set(names)) == len(set(positions)) == 9


def test_each_position_is_the_token_there() -> None:
    images = torch.rand(3, 2, 12, 8)
    encoder = PatchMeanEncoder(2, (12, 8), (4, 4))
    positions, names = spread_positions(encoder.grid_size, 2)
    assert names == ["1, 1", "1, 2", "3, 1", "3, 2"]
    features = position_features(encoder, images, positions, progress=False)
    torch.testing.assert_close(features[:, 2], images[:, :, 8:, :4].mean((2, 3)))
    torch.testing.assert_close(image_features(encoder, images, progress=False), images.mean((2, 3)))
    with pytest.raises(ValueError, match="per_axis"):
        spread_positions((2, 2), 0)


def test_windows_know_nothing_of_the_place() -> None:
    encoder = PositionEncoder((32, 32), (8, 8))
    landmarks = 31 * torch.rand(6, 4, 2)
    features = landmark_features(
        encoder, torch.rand(6, 1, 32, 32), landmarks, batch_size=5, progress=False
    )
    spread = features.flatten(0, 1).std(0).max()
    assert spread < 1e-5


def test_landmark_features_are_those_of_the_window_and_its_mirror() -> None:
    size = 33
    images = torch.zeros(2, 2, size, size)
    images[0, 0, 8:13, 8:13] = 1  # around landmark 0 of the first image
    landmarks = torch.tensor([[[10.0, 10.0], [24.0, 24.0]], [[10.0, 10.0], [torch.nan, 1.0]]])
    encoder = PatchMeanEncoder(2, (size, size), (11, 11))
    features = landmark_features(encoder, images, landmarks, window=0.25, progress=False)
    assert features[0, 0, 0] > 0.3
    assert features[0, 0, 1] == features[0, 1].abs().max() == features[1, 0].abs().max() == 0
    assert features[1, 1].isnan().all()
    vit = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    picture, place = torch.rand(1, 1, 32, 32), torch.tensor([[[12.0, 20.0]]])
    flipped_place = torch.tensor([[[12.0, 31 - 20.0]]])
    mirrored = landmark_features(vit, picture, place, mirrored=True, progress=False)
    torch.testing.assert_close(
        mirrored,
        landmark_features(vit, picture.flip(-1), flipped_place, progress=False),
        atol=1e-4,
        rtol=1e-3,
    )
    with pytest.raises(ValueError, match="expected landmarks"):
        landmark_features(vit, picture, landmarks, progress=False)
