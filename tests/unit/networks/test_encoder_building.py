# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders by their names, and what is refused in their place."""

from __future__ import annotations

import pytest
import torch
from monai.networks.nets import ViT

from monai_afire.networks import MONAIEncoder, ResidualEncoder, build_encoder
from unit.tiny_networks import tiny_vit

SIZES = {"hidden_size": 24, "mlp_dim": 48, "num_layers": 1, "num_heads": 2, "spatial_dims": 2}


def monai_vit(channels: int = 1) -> ViT:
    return ViT(channels, (32, 32), (8, 8), **SIZES)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "hub:", "dinov2", "timm::pretrained"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hub:FOLDER"):
        build_encoder(text, tiny_vit())


@pytest.mark.parametrize(
    ("channels", "own", "named"),
    [(1, {"patch_size": 16}, "patch_size"), (1, {"img_size": 64}, "size"), (2, {}, "channels")],
)
def test_a_chosen_encoder_has_the_sizes_of_the_bundle(
    channels: int, own: dict[str, int], named: str
) -> None:
    assert isinstance(build_encoder(monai_vit(), tiny_vit()), MONAIEncoder)
    with pytest.raises(ValueError, match=named):
        build_encoder(monai_vit(channels), tiny_vit(**own))


def test_the_name_residual_gives_a_small_network_for_the_bundles_images() -> None:
    encoder = build_encoder("residual", tiny_vit(in_channels=3, img_size=(32, 64)))
    assert isinstance(encoder, ResidualEncoder)
    assert encoder(torch.rand(2, 3, 32, 64)).shape == (2, 32, 256)
