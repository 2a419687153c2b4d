# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import numpy as np
import pytest
import torch
from apps.studies.stub_encoders import PatchMeanEncoder, tiny_vit
from numpy.typing import NDArray

from monai_afire.apps.studies.features import (
    dense_features,
    landmark_features,
)
from monai_afire.networks import ViTEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder


def naive_dense(
    encoder: RadiographEncoder, images: torch.Tensor, stride: int
) -> NDArray[np.float32]:
    """One cell at a time: the image moved so that a token is centered where the documentation says."""
    size, patch = encoder.img_size, encoder.patch_size
    cells = [s // stride for s in size]
    features = np.zeros((len(images), encoder.hidden_size, *cells), dtype=np.float32)
    for cell in np.ndindex(*cells):
        center = [
            j * stride - (p - stride) // 2 + (p - 1) / 2 for j, p in zip(cell, patch, strict=True)
        ]
        # pixel at which the patch begins
        first = [int(c - (p - 1) / 2) for c, p in zip(center, patch, strict=True)]
        token = [j * stride // p for j, p in zip(cell, patch, strict=True)]
        moves = [f - t * p for f, t, p in zip(first, token, patch, strict=True)]
        places = [np.clip(np.arange(s) + m, 0, s - 1) for s, m in zip(size, moves, strict=True)]
        moved = images[:, :, places[0]][:, :, :, places[1]]
        with torch.no_grad():
            tokens = encoder(moved)
        features[(..., *cell)] = tokens[:, token[0] * encoder.grid_size[1] + token[1]].numpy()
    return features


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_like_one_cell_at_a_time(stride: int) -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(
        img_size=(16, 24), patch_size=8, hidden_size=12, num_layers=1, num_heads=2
    ).eval()
    images = torch.rand(3, 1, 16, 24)
    features = dense_features(encoder, images, stride, batch_size=5)
    assert features.shape == (3, 12, 16 // stride, 24 // stride)
    np.testing.assert_allclose(features.numpy(), naive_dense(encoder, images, stride), atol=2e-6)


def test_landmark_features_are_those_of_the_window_and_its_mirror() -> None:
    size = 33
    images = torch.zeros(2, 2, size, size)
    images[0, 0, 8:13, 8:13] = 1  # around landmark 0 of the first image
    landmarks = torch.tensor([[[10.0, 10.0], [24.0, 24.0]], [[10.0, 10.0], [torch.nan, 1.0]]])
    encoder = PatchMeanEncoder(2, (size, size), (11, 11))
    features = landmark_features(encoder, images, landmarks, window=0.25)
    assert features[0, 0, 0] > 0.3
    assert features[0, 0, 1] == features[0, 1].abs().max() == features[1, 0].abs().max() == 0
    assert features[1, 1].isnan().all()
    vit = tiny_vit()
    picture, place = torch.rand(1, 1, 32, 32), torch.tensor([[[12.0, 20.0]]])
    flipped_place = torch.tensor([[[12.0, 31 - 20.0]]])
    mirrored = landmark_features(vit, picture, place, mirrored=True)
    torch.testing.assert_close(
        mirrored,
        landmark_features(vit, picture.flip(-1), flipped_place),
        atol=1e-4,
        rtol=1e-3,
    )
