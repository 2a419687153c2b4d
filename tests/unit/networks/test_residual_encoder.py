# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The residual network under the interface that methods and heads rely on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.networks.nets import ResNet

from monai_afire.networks import ResidualEncoder, TransferClassifier
from monai_afire.optimizers import layer_decay_groups

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "hidden_size": 64}


def res_net(**changed: Any) -> ResidualEncoder:
    torch.manual_seed(0)
    return ResidualEncoder(**{**SMALL, "depths": (1, 1, 1, 2), **changed}).eval()


def test_the_residual_network_is_monais() -> None:
    encoder = res_net()
    model = encoder.model
    assert isinstance(model, ResNet)
    images = torch.rand(2, 1, 32, 32)
    values = model.act(model.bn1(model.conv1((images - encoder.mean) / encoder.std)))
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        values = stage(values)
    torch.testing.assert_close(encoder(images), values.flatten(2).mT)


@pytest.mark.parametrize("patch_size", [8, 32])
def test_maps_and_tokens_have_the_sizes_that_are_announced(patch_size: int) -> None:
    encoder = res_net(img_size=64, patch_size=patch_size)
    images = torch.rand(1, 1, 64, 64)
    maps = encoder.feature_maps(images)
    assert encoder(images).shape == (1, (64 // patch_size) ** 2, 64)
    for each, channels, strides in zip(
        maps, encoder.feature_channels, encoder.feature_strides, strict=True
    ):
        assert each.shape == (1, channels, *(64 // stride for stride in strides))
    torch.testing.assert_close(maps[-1].flatten(2).mT, encoder(images))
    assert all(each.mean(1).abs().max() < 1e-4 for each in maps[:-1]), "normalized over channels"


def test_every_parameter_has_a_gradient_and_a_depth() -> None:
    encoder = res_net().train()
    encoder(torch.rand(2, 1, 32, 32)).square().sum().backward()
    assert all(each.grad is not None for each in encoder.parameters())
    groups = layer_decay_groups(TransferClassifier(encoder, 2), 1e-3, layer_decay=0.5)
    rates = {group["lr_scale"] for group in groups}
    assert len(rates) == 1 + len(encoder.parameters_by_depth())


def test_images_of_other_sizes_are_encoded_alike() -> None:
    encoder = res_net()
    images = torch.rand(1, 1, 32, 32)
    torch.testing.assert_close(encoder.encode_any_size(images), encoder(images))
    assert encoder.encode_any_size(torch.rand(1, 1, 16, 48)).shape == (1, 12, 64)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"patch_size": 4}, "patch_size"),
        ({"hidden_size": 96}, "hidden_size"),
        ({"img_size": 36}, "multiple"),
    ],
)
def test_impossible_residual_networks_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        res_net(**changed)
