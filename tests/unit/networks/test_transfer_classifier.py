# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Classification: pooling, order of classes, and the linear probe that leaves the encoder alone."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.nets.transfer_classifier import TransferClassifier

KINDS = ("vit", "swin")


def build(kind: str, regularized: bool = False) -> RadiographEncoder:
    if kind == "swin":
        stages: dict[str, Any] = {"depths": (1, 2), "num_heads": (1, 2)}
        rate = 0.5 if regularized else 0.0
        return SwinEncoder(
            img_size=16, patch_size=2, window_size=4, embed_dim=8, drop_path_rate=rate, **stages
        )
    rate = 0.5 if regularized else 0.0
    return ViTEncoder(1, (16, 24), 8, 24, num_layers=2, num_heads=2, dropout_rate=rate)


def images_for(encoder: RadiographEncoder, number: int = 2) -> torch.Tensor:
    return torch.rand(number, encoder.in_channels, *encoder.img_size)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_by_hand(kind: str) -> None:
    torch.manual_seed(0)
    network = TransferClassifier(build(kind), num_classes=5).eval()
    nn.init.normal_(network.classifier.bias)
    images = images_for(network.encoder, number=3)
    tokens = network.encoder(images)
    logits, features = network(images), network.features(images)
    assert (logits.shape, features.shape) == ((3, 5), (3, network.encoder.hidden_size))
    for n in range(3):
        mean = sum(tokens[n]) / len(tokens[n])
        torch.testing.assert_close(features[n], mean, rtol=0, atol=1e-6)
        for k in range(5):  # output k is row k of the weights: the caller's order of classes
            expected = (network.classifier.weight[k] * mean).sum() + network.classifier.bias[k]
            torch.testing.assert_close(logits[n, k], expected, rtol=0, atol=1e-5)


def test_first_logits_are_small_and_dropout_acts_on_the_mean_token() -> None:
    torch.manual_seed(1)
    network = TransferClassifier(build("vit"), num_classes=50, dropout_rate=0.5).train()
    assert not network.classifier.bias.any()
    assert 0.015 < network.classifier.weight.std() < 0.025
    images = images_for(network.encoder)
    assert torch.equal(network.features(images), network.features(images))
    assert not torch.equal(network(images), network(images))
    network.eval()
    assert torch.equal(network(images), network(images))


def test_a_batch_of_one_is_refused_where_it_cannot_be_standardized() -> None:
    network = TransferClassifier(build("vit"), num_classes=4)
    image = images_for(network.encoder, number=1)
    with pytest.raises(ValueError, match="more than 1 value"):
        network(image)
    assert network.eval()(image).shape == (1, 4)
    plain = TransferClassifier(network.encoder, num_classes=4, standardize_features=False).train()
    assert plain(image).shape == (1, 4)


def test_features_are_standardized_over_the_batch_and_then_over_what_was_seen() -> None:
    torch.manual_seed(9)
    network = TransferClassifier(build("vit"), num_classes=4)
    images = images_for(network.encoder, number=6)
    features = network.features(images).detach()
    standardized = (features - features.mean(0)) / (features.var(0, unbiased=False) + 1e-5).sqrt()
    expected = standardized @ network.classifier.weight.T
    torch.testing.assert_close(network(images), expected, rtol=1e-3, atol=1e-4)
    for _ in range(100):  # until the running statistics are those of these images
        network(images)
    torch.testing.assert_close(network.eval()(images), expected, rtol=0.15, atol=1e-2)
    plain = TransferClassifier(network.encoder, num_classes=4, standardize_features=False)
    plain.load_state_dict(
        {name: value for name, value in network.state_dict().items() if "standardize" not in name}
    )
    torch.testing.assert_close(plain(images), features @ network.classifier.weight.T)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_is_trained(kind: str) -> None:
    torch.manual_seed(2)
    network = TransferClassifier(build(kind), num_classes=2)
    network(images_for(network.encoder, number=3)).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_trains_the_linear_layer_only(kind: str) -> None:
    torch.manual_seed(3)
    encoder = build(kind, regularized=True)
    network = TransferClassifier(encoder, num_classes=2, freeze_encoder=True)
    before = copy.deepcopy(network.state_dict())
    images = images_for(encoder, number=3)
    assert network.training
    for mode in (True, False, True):
        assert network.train(mode) is network
        assert network.dropout.training == mode
        assert not any(module.training for module in encoder.modules())
    assert not network.features(images).requires_grad
    assert torch.equal(network.features(images), network.features(images))
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    assert trained == list(network.classifier.parameters())
    # all, as a careless caller would
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1, weight_decay=0.5)
    network(images).square().mean().backward()
    optimizer.step()
    for name, value in network.state_dict().items():
        trained_or_seen = name.startswith(("classifier.", "standardize."))
        assert torch.equal(value, before[name]) != trained_or_seen, name
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", [False, True])
def test_export_and_tracing(kind: str, frozen: bool) -> None:
    torch.manual_seed(4)
    network = TransferClassifier(build(kind), num_classes=3, freeze_encoder=frozen).eval()
    images, more = images_for(network.encoder), images_for(network.encoder, number=5)
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(exported.module()(more), network(more), rtol=0, atol=1e-6)
    with torch.no_grad():
        traced = torch.jit.trace(network, images)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    torch.testing.assert_close(torch.jit.load(file)(images), network(images), rtol=0, atol=1e-6)


def test_rare_findings_do_not_tie_under_autocast() -> None:
    torch.manual_seed(7)
    network = TransferClassifier(build("vit"), 1).eval()
    nn.init.constant_(network.classifier.bias, -4.0)  # a finding in one of fifty images
    nn.init.normal_(network.classifier.weight, std=0.01)
    images = images_for(network.encoder, number=32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(images)
    assert logits.dtype == torch.float32
    assert len(logits.unique()) == 32


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_classes": 0}, ValueError, "num_classes must be at least 1, got 0"),
        ({"encoder": nn.Identity()}, TypeError, "Identity is no encoder, it has no in_channels"),
    ],
)
def test_hostile_settings_fail_at_once(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    default: dict[str, Any] = {"encoder": build("vit"), "num_classes": 2}
    with pytest.raises(error, match=message):
        TransferClassifier(**(default | settings))
