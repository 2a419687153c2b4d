# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What all encoders share: the normalization of intensities, and maps of tokens."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from monai_afire.networks import RadiographEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import GRAY_MEAN, GRAY_STD
from unit.tiny_networks import tiny_vit


def test_normalization() -> None:
    encoder = tiny_vit()
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(encoder.normalize(images), (images - GRAY_MEAN) / GRAY_STD)
    torch.testing.assert_close(encoder.denormalize(encoder.normalize(images)), images)
    assert encoder.denormalize(torch.tensor([-100.0, 100.0])).flatten().tolist() == [0.0, 1.0]
    color = tiny_vit(in_channels=3, mean=[0.1, 0.2, 0.3], std=[1.0, 2.0, 4.0])
    expected = torch.tensor([0.9, 0.4, 0.175]).reshape(1, 3, 1, 1).expand(1, 3, 32, 32)
    torch.testing.assert_close(color.normalize(torch.ones(1, 3, 32, 32)), expected)
    assert not {"mean", "std"} & set(color.state_dict())


class MeanEncoder(RadiographEncoder):
    """Each token is the mean of its patch: an encoder that offers no more than its tokens."""

    def __init__(self) -> None:
        super().__init__(1, (4, 6), (2, 2), 1, 0.0, 1.0)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.check_images(images)
        return F.avg_pool2d(images, 2).flatten(2).transpose(1, 2)


def test_an_encoder_of_tokens_only_has_one_map() -> None:
    encoder = MeanEncoder()
    images = torch.rand(3, 1, 4, 6)
    (features,) = encoder.feature_maps(images)
    assert (encoder.feature_channels, encoder.feature_strides) == ((1,), ((2, 2),))
    assert torch.equal(features, F.avg_pool2d(images, 2))
    with pytest.raises(NotImplementedError, match="MeanEncoder"):
        encoder.parameters_by_depth()
