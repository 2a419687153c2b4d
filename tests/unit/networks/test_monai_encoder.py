# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""MONAI's networks as encoders, the interface of encoders, and weights of encoders that are not our own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from monai.networks.nets import BasicUNet, ViT
from monai.networks.nets.swin_unetr import SwinTransformer
from torch import nn

from monai_afire.networks import (
    PEAC,
    AFiRe,
    MONAIEncoder,
    TransferClassifier,
    UPerNet,
    as_encoder,
    load_encoder_weights,
)
from monai_afire.optimizers import layer_decay_groups

SIZES = {"hidden_size": 24, "mlp_dim": 48, "num_layers": 5, "num_heads": 2, "spatial_dims": 2}


def vit(**settings: object) -> ViT:
    return ViT(1, (32, 32), (8, 8), **{**SIZES, **settings})  # type: ignore[arg-type]


def swin() -> SwinTransformer:
    return SwinTransformer(1, 12, (2, 2), (2, 2), (1, 2, 1, 1), (1, 1, 2, 2), spatial_dims=2)


@pytest.mark.parametrize("proj_type", ["conv", "perceptron"])
def test_tokens_of_a_vit_are_its_output(proj_type: str) -> None:
    model = vit(proj_type=proj_type).eval()
    images = torch.rand(3, 1, 32, 32)
    encoder = MONAIEncoder(model, mean=0.4, std=0.2)
    assert (encoder.patch_size, encoder.grid_size, encoder.hidden_size) == ((8, 8), (4, 4), 24)
    torch.testing.assert_close(encoder(images), model((images - 0.4) / 0.2)[0])
    plain = as_encoder(model)
    torch.testing.assert_close(plain(images), model(images)[0])
    maps = plain.feature_maps(images)
    torch.testing.assert_close(maps[-1].flatten(2).mT, model(images)[0])
    # 5 blocks: the outputs of the second, third, fourth and fifth
    second = nn.functional.layer_norm(model(images)[1][1], (24,))
    torch.testing.assert_close(maps[0].flatten(2).mT, second)


def test_the_class_token_of_a_vit_is_left_out_and_its_head_is_frozen() -> None:
    model = vit(classification=True).eval()
    images = torch.rand(2, 1, 32, 32)
    encoder = as_encoder(model)
    expected = model.norm(model(images)[1][-1])[:, 1:]
    torch.testing.assert_close(encoder(images), expected)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == encoder.unused
    assert {"classification_head.0.weight", "classification_head.0.bias"} <= frozen
    assert "cls_token" not in frozen


def test_maps_of_a_swin_transformer_are_its_outputs() -> None:
    model = swin().eval()
    images = torch.rand(2, 1, 64, 64)
    encoder = MONAIEncoder(model, img_size=64)
    outputs = model(images)
    torch.testing.assert_close(encoder(images), outputs[-1].flatten(2).mT)
    assert encoder.feature_channels == tuple(each.shape[1] for each in outputs)
    assert encoder.feature_strides == tuple((64 // each.shape[2],) * 2 for each in outputs)
    assert len(encoder.blocks()) == 5
    with pytest.raises(ValueError, match="size of its images"):
        as_encoder(swin())


def unet(**settings: object) -> BasicUNet:
    return BasicUNet(spatial_dims=2, in_channels=1, features=(4, 8, 8, 16, 16, 4), **settings)  # type: ignore[arg-type]


def test_maps_of_a_unet_are_those_of_its_way_down() -> None:
    model = unet()
    images = torch.rand(2, 1, 32, 32)
    seen: list[torch.Tensor] = []
    for stage in (model.conv_0, model.down_1, model.down_2, model.down_3, model.down_4):
        stage.register_forward_hook(lambda _module, _inputs, output: seen.append(output.clone()))
    model(images)
    expected = list(seen)
    encoder = as_encoder(model, 32)
    maps = encoder.feature_maps(images)
    assert torch.equal(maps[-1], expected[-1])
    assert torch.equal(encoder(images), expected[-1].flatten(2).mT)
    for found, wanted in zip(maps[:-1], expected[:-1], strict=True):
        normalized = nn.functional.layer_norm(wanted.movedim(1, -1), wanted.shape[1:2])
        torch.testing.assert_close(found, normalized.movedim(-1, 1))
    assert encoder.feature_channels == (4, 8, 8, 16, 16)
    assert encoder.feature_strides == tuple((2**k,) * 2 for k in range(5))
    assert (encoder.patch_size, encoder.grid_size, encoder.hidden_size) == ((16, 16), (2, 2), 16)


def test_the_way_up_of_a_unet_is_frozen_and_the_way_down_learns_by_its_depth() -> None:
    network = TransferClassifier(as_encoder(unet(), 32), 2)
    model = network.encoder.model
    frozen = {name.split(".")[0] for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"upcat_1", "upcat_2", "upcat_3", "upcat_4", "final_conv"}
    groups = layer_decay_groups(network, 1.0, weight_decay=0.1, layer_decay=0.5)
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert rates[id(model.conv_0.conv_0.conv.weight)] == 0.5**5
    assert rates[id(model.down_4.convs.conv_1.conv.weight)] == 0.5


@pytest.mark.parametrize("kind", ["unet", "vit"])
def test_a_method_learns_with_a_network_of_monai(kind: str) -> None:
    encoder: nn.Module = as_encoder(unet(norm="batch"), 32) if kind == "unet" else vit()
    network = PEAC(encoder, 8, 16)
    network(torch.rand(4, 1, 32, 32)).square().mean().backward()
    learning = {name: p for name, p in network.encoder.named_parameters() if p.requires_grad}
    without = [name for name, parameter in learning.items() if parameter.grad is None]
    assert not without, "distributed training would stop at them"


def test_networks_for_transfer_take_monais_vit() -> None:
    images = torch.rand(2, 1, 32, 32)
    assert TransferClassifier(vit(), 3, freeze_encoder=True)(images).shape == (2, 3)
    assert UPerNet(vit(), 3, channels=8)(images).shape == (2, 3, 32, 32)


def test_layers_learn_by_their_depth() -> None:
    network = TransferClassifier(vit(classification=True), 2)
    groups = layer_decay_groups(network, 1.0, weight_decay=0.1, layer_decay=0.5)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    rates = {names[id(parameter)]: group["lr"] for group in groups for parameter in group["params"]}
    assert rates["encoder.model.cls_token"] == 0.5**6
    assert rates["encoder.model.patch_embedding.patch_embeddings.weight"] == 0.5**6
    assert rates["encoder.model.blocks.0.attn.qkv.weight"] == 0.5**5
    assert rates["encoder.model.blocks.4.attn.qkv.weight"] == 0.5
    assert rates["encoder.model.norm.weight"] == rates["classifier.weight"] == 1.0
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert "encoder.model.cls_token" not in decayed


def test_weights_of_an_adapted_encoder_fit_exactly_or_not_at_all(tmp_path: Path) -> None:
    trained = AFiRe(vit(), 8, 16, 16, 1, 2)
    for parameter in trained.encoder.parameters():
        nn.init.normal_(parameter)
    path = tmp_path / "model.pt"
    torch.save(trained.state_dict(), path)
    images = torch.rand(1, 1, 32, 32)
    for branch, expected in (("teacher", trained.teacher_encoder), ("student", trained.encoder)):
        classifier = TransferClassifier(vit(), 2).eval()
        report = load_encoder_weights(classifier, path, branch=branch)
        assert (len(report.missing), branch in report.prefix) == (0, branch == "teacher")
        torch.testing.assert_close(classifier.encoder(images), expected.eval()(images))

    name = "blocks.3.mlp.linear1.weight"
    state = vit().state_dict()
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    less = {each: tensor for each, tensor in state.items() if each != name}
    for content, words in (
        (less, name),
        ({**state, name: torch.zeros(50, 24)}, name),
        ({"a": state, "b": state}, "2 encoders"),
    ):
        with pytest.raises(ValueError, match=words):
            load_encoder_weights(classifier, {"backbone": content})
    assert all(torch.equal(each, before[name]) for name, each in classifier.state_dict().items())
