# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders of timm against the library itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from monai_afire.networks import (
    TimmEncoder,
    UPerNet,
    ViTEncoder,
    build_encoder,
    find_weights,
    load_encoder_weights,
)
from unit.tiny_networks import tiny_vit


def timm_library() -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        # the latter where torch and torchvision are of different builds
        pytest.skip(
            f"needs timm and a torchvision that fits torch: pip install 'monai-afire[timm]' ({error})"
        )
    return timm


def normalized(gray: torch.Tensor, mean: Any, std: Any) -> torch.Tensor:
    channels = [(gray[:, 0] - m) / s for m, s in zip(mean, std, strict=True)]
    return torch.stack(channels, 1)


TIMM = {
    "vit_tiny_patch16_224": ({"depth": 3, "embed_dim": 24, "num_heads": 2}, 64),
    "vit_small_patch14_reg4_dinov2": ({"depth": 3, "embed_dim": 24, "num_heads": 2}, 56),
    "vit_small_patch16_dinov3": ({"depth": 3, "embed_dim": 32, "num_heads": 2}, 64),
    "eva02_tiny_patch14_224": ({"depth": 3, "embed_dim": 32, "num_heads": 2}, 56),
    "swin_tiny_patch4_window7_224": (
        {"depths": (1, 1, 1, 1), "embed_dim": 8, "num_heads": (1, 1, 2, 2)},
        64,
    ),
    "convnext_atto": ({"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)}, None),
}


@pytest.mark.parametrize("name", TIMM)
def test_tokens_are_those_of_timm(name: str) -> None:
    timm = timm_library()
    settings, size = TIMM[name]
    sized = {"img_size": size} if size else {}
    model = timm.create_model(name, num_classes=0, **settings, **sized).eval()
    side = size or 64
    images = torch.rand(2, 1, side, side)
    encoder = TimmEncoder(model, side)
    config = model.pretrained_cfg
    expected = model.forward_features(normalized(images, config["mean"], config["std"]))
    if expected.ndim == 3:
        expected = expected[:, model.num_prefix_tokens :]
    elif "swin" in name:
        expected = expected.flatten(1, 2)
    else:
        expected = expected.flatten(2).mT
    torch.testing.assert_close(encoder(images), expected, rtol=0, atol=1e-5)
    maps = encoder.feature_maps(images)
    assert tuple(each.shape[1] for each in maps) == encoder.feature_channels
    torch.testing.assert_close(maps[-1].flatten(2).mT, expected, rtol=0, atol=1e-5)
    layers = encoder.parameters_by_depth()
    assert all(layers)
    assert len(layers) == len(encoder.blocks()) + 1
    assert UPerNet(encoder, 2, channels=8)(images).shape == (2, 2, side, side)


def test_timm_gives_the_features_of_the_released_vit_tiny() -> None:
    timm = timm_library()
    encoder = ViTEncoder(img_size=224, patch_size=16, hidden_size=192, num_layers=12, num_heads=3)
    load_encoder_weights(encoder, "released_224", strict=True)
    settings = {
        "in_chans": 1,
        "num_classes": 0,
        "class_token": False,
        "global_pool": "avg",
        "fc_norm": False,
    }
    model = timm.create_model("vit_tiny_patch16_224", **settings).eval()
    model.load_state_dict(load_file(find_weights("released_224")))  # as the card says
    images = torch.rand(2, 1, 224, 224)
    with torch.inference_mode():
        expected = model.forward_features((images - 0.449) / 0.226)
        torch.testing.assert_close(encoder.eval()(images), expected, rtol=1e-3, atol=1e-3)


def test_timm_is_asked_by_name() -> None:
    timm_library()
    own = tiny_vit(img_size=64, patch_size=16)
    assert build_encoder("timm:vit_tiny_patch16_224", own).img_size == (64, 64)
    for name, size in (("vit_nothing", 64), ("vit_tiny_patch16_224", 50)):
        with pytest.raises(ValueError, match=r"vit_nothing|50"):
            TimmEncoder(name, size)
