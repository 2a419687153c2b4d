# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The residual network and the convolutional stem under the interface that methods and heads rely on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.networks.nets import ResNet

from monai_afire.networks import (
    ACE,
    PEAC,
    AFiRe,
    ResidualEncoder,
    TransferClassifier,
    UPerNet,
    ViTEncoder,
    as_encoder,
    build_encoder,
    load_encoder_weights,
)
from monai_afire.networks.definition import build_network, definition_of
from monai_afire.optimizers import layer_decay_groups

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "hidden_size": 64}


def res_net(**changed: Any) -> ResidualEncoder:
    torch.manual_seed(0)
    return ResidualEncoder(**{**SMALL, "depths": (1, 1, 1, 2), **changed}).eval()


def stem_vit(**changed: Any) -> ViTEncoder:
    torch.manual_seed(0)
    return ViTEncoder(
        **{**SMALL, "num_layers": 2, "num_heads": 2, "stem": "convolution", **changed}
    ).eval()


def test_the_residual_network_is_monais() -> None:
    encoder = res_net()
    model = encoder.model
    assert isinstance(model, ResNet)
    images = torch.rand(2, 1, 32, 32)
    values = model.layer4(
        model.layer3(
            model.layer2(
                model.layer1(
                    model.act(model.bn1(model.conv1((images - encoder.mean) / encoder.std)))
                )
            )
        )
    )
    torch.testing.assert_close(encoder(images), values.flatten(2).mT)


@pytest.mark.parametrize(("patch_size", "spatial_dims"), [(8, 2), (16, 2), (32, 2), (16, 3)])
def test_maps_and_tokens_have_the_sizes_that_are_announced(
    patch_size: int, spatial_dims: int
) -> None:
    size = (64,) * spatial_dims
    encoder = res_net(img_size=64, patch_size=patch_size, spatial_dims=spatial_dims)
    images = torch.rand(1, 1, *size)
    maps = encoder.feature_maps(images)
    assert encoder(images).shape == (1, (64 // patch_size) ** spatial_dims, 64)
    for each, channels, strides in zip(
        maps, encoder.feature_channels, encoder.feature_strides, strict=True
    ):
        assert each.shape == (1, channels, *(64 // stride for stride in strides))
    torch.testing.assert_close(maps[-1].flatten(2).mT, encoder(images))


def test_every_parameter_has_a_gradient_and_a_depth() -> None:
    for encoder in (res_net(), stem_vit()):
        encoder.train()
        encoder(torch.rand(2, 1, 32, 32)).square().sum().backward()
        trained = {name for name, each in encoder.named_parameters() if each.requires_grad}
        assert {
            name for name, each in encoder.named_parameters() if each.grad is not None
        } == trained
        groups = layer_decay_groups(TransferClassifier(encoder, 2), 1e-3, layer_decay=0.5)
        rates = {group["lr_scale"] for group in groups}
        assert len(rates) == 1 + len(encoder.layers_by_depth())


def test_images_of_other_sizes_are_encoded_alike() -> None:
    encoder = res_net()
    images = torch.rand(1, 1, 32, 32)
    torch.testing.assert_close(encoder.encode_any_size(images), encoder(images))
    assert encoder.encode_any_size(torch.rand(1, 1, 16, 48)).shape == (1, 12, 64)
    with pytest.raises(ValueError, match="cannot be cut into patches"):
        encoder.encode_any_size(torch.rand(1, 1, 20, 32))


@pytest.mark.parametrize("make", [res_net, stem_vit])
def test_definitions_build_the_same_network(make: Any) -> None:
    encoder = make()
    definition = definition_of(encoder)
    assert definition is not None
    other = build_network(definition)
    other.load_state_dict(encoder.state_dict())
    images = torch.rand(2, 1, 32, 32)
    assert torch.equal(other.eval()(images), encoder(images))


@pytest.mark.parametrize("make", [res_net, stem_vit])
def test_methods_and_heads_take_them(make: Any) -> None:
    encoder = make()
    assert as_encoder(encoder) is encoder
    image, lesion = torch.rand(2, 1, 32, 32), torch.rand(2, 1, 1, 32, 32)
    outputs = AFiRe(encoder, num_clusters=8, decoder_layers=1)(
        image, lesion, torch.zeros(2, 1, 1, 32, 32)
    )
    assert all(
        torch.isfinite(each).all()
        for each in outputs.values()
        if isinstance(each, torch.Tensor) and each.is_floating_point()
    )
    assert UPerNet(make(), num_classes=2, channels=8)(image).shape == (2, 2, 32, 32)
    assert PEAC(make()).encoder.hidden_size == ACE(make()).encoder.hidden_size == 64


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"patch_size": 4}, "patch_size must be one of"),
        ({"hidden_size": 96}, "multiple of 64"),
        ({"depths": (1, 1, 1)}, "four numbers"),
        ({"depths": (1, 1, 1, 0)}, "four numbers"),
        ({"img_size": 36}, "multiple"),
    ],
)
def test_impossible_residual_networks_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        res_net(**changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"patch_size": 6, "img_size": 36}, "power of two"),
        ({"patch_size": 16, "hidden_size": 68}, "not a multiple"),
        ({"stem": "conv"}, "stem must be one of"),
    ],
)
def test_impossible_stems_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stem_vit(**changed)


@pytest.mark.parametrize("make", [stem_vit, res_net])
def test_pre_trained_weights_of_a_method_load_again(make: Any) -> None:
    method = PEAC(make())
    torch.manual_seed(7)
    for value in method.encoder.parameters():
        torch.nn.init.normal_(value)
    fresh = make()
    report = load_encoder_weights(fresh, {"network": method.state_dict()}, branch="student")
    assert not report.missing
    for name, value in method.encoder.state_dict().items():
        torch.testing.assert_close(fresh.state_dict()[name], value, msg=name)


def test_a_stem_of_another_image_size_is_loaded_whole() -> None:
    source, target = stem_vit(), stem_vit(img_size=64)
    report = load_encoder_weights(target, source.state_dict())
    assert not report.missing
    assert report.resized == ["patch_embedding.position_embeddings of 4 x 4 patches -> 8 x 8"]


def test_another_stem_than_that_of_the_weights_is_an_error() -> None:
    source, target = ViTEncoder(**{**SMALL, "num_layers": 2, "num_heads": 2}), stem_vit()
    for weights, encoder in ((source, target), (target, source)):
        with pytest.raises(
            ValueError,
            match=r"lacks \d+ of the .* tensors of this encoder \(patch_embedding\.patch_emb",
        ):
            load_encoder_weights(encoder, weights.state_dict())


@pytest.mark.parametrize("size", [(32, 64), (32, 32, 64)])
def test_the_name_residual_gives_a_small_network_for_the_bundles_images(
    size: tuple[int, ...],
) -> None:
    own = ViTEncoder(
        3,
        size,
        8,
        hidden_size=60,
        num_layers=1,
        num_heads=2,
        spatial_dims=len(size),
        pos_embed_type="none",
    )
    encoder = build_encoder("residual", own)
    assert isinstance(encoder, ResidualEncoder)
    assert encoder.feature_channels == (32, 64, 128, 256)
    assert encoder(torch.rand(2, 3, *size)).shape == (2, own.grid_size[0] ** len(size) * 2, 256)
