# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What networks take as an encoder, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from monai.networks.nets import DenseNet121
from torch import nn

from monai_afire.networks import (
    AFiRe,
    RadiographEncoder,
    TransferClassifier,
    ViTEncoder,
    as_encoder,
)


def test_another_class_with_the_interface_is_taken() -> None:
    class Own(RadiographEncoder):
        def __init__(self) -> None:
            super().__init__(1, (8, 8), (4, 4), 16, 0.0, 1.0)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.unfold(2, 4, 4).unfold(3, 4, 4).flatten(4).flatten(2, 3)[:, 0]

    assert TransferClassifier(Own(), 2)(torch.rand(2, 1, 8, 8)).shape == (2, 2)


def test_networks_that_are_no_encoders_are_refused() -> None:
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    fitting = r"ViT, SwinTransformer or BasicUNet of MONAI.*ResidualEncoder"
    for network in (nn.Linear(2, 2), DenseNet121(2, 1, 2)):
        with pytest.raises(TypeError, match=f"{type(network).__name__}.*{fitting}"):
            as_encoder(network)
    with pytest.raises(TypeError, match=r"AFiRe.*\.encoder"):
        TransferClassifier(AFiRe(encoder, 8, 16, 16, 1, 2), 2)
