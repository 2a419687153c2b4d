# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders by their names, and what is refused in their place."""

from __future__ import annotations

import pytest
import torch
from monai.networks.nets import ViT

from monai_afire.networks import (
    MONAIEncoder,
    ResidualEncoder,
    ViTEncoder,
    build_encoder,
)

SIZES = {"hidden_size": 24, "mlp_dim": 48, "num_layers": 1, "num_heads": 2, "spatial_dims": 2}


def vit() -> ViT:
    return ViT(1, (32, 32), (8, 8), **SIZES)  # type: ignore[arg-type]


def own() -> ViTEncoder:
    return ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)


@pytest.mark.parametrize("text", ["", "hub:", "dinov2", "http://x", "timm::pretrained"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hub:FOLDER"):
        build_encoder(text, own())


def test_a_chosen_encoder_has_the_sizes_of_the_bundle() -> None:
    assert isinstance(build_encoder(vit(), own()), MONAIEncoder)
    sizes = {"hidden_size": 24, "num_layers": 1, "num_heads": 2}
    for encoder, others, words in (
        (vit(), {"img_size": 32, "patch_size": 16}, "patch_size to 8"),
        (vit(), {"img_size": 64, "patch_size": 8}, "another size"),
        (ViT(2, (32, 32), (8, 8), **SIZES), {"img_size": 32, "patch_size": 8}, "channels"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=words):
            build_encoder(encoder, ViTEncoder(**sizes, **others))  # type: ignore[arg-type]


def test_the_name_residual_gives_a_small_network_for_the_bundles_images() -> None:
    sizes = {"hidden_size": 24, "num_layers": 1, "num_heads": 2}
    encoder = build_encoder("residual", ViTEncoder(3, (32, 64), 8, **sizes))
    assert isinstance(encoder, ResidualEncoder)
    assert encoder.feature_channels == (32, 64, 128, 256)
    assert encoder(torch.rand(2, 3, 32, 64)).shape == (2, 32, 256)
