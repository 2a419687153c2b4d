# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Classification: pooling, order of classes, and the linear probe that leaves the encoder alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from monai_afire.networks import RadiographEncoder, TransferClassifier
from unit.tiny_networks import tiny_vit


def images_for(encoder: RadiographEncoder, number: int = 2) -> torch.Tensor:
    return torch.rand(number, encoder.in_channels, *encoder.img_size)


def test_logits_are_those_of_the_mean_token() -> None:
    network = TransferClassifier(tiny_vit(), num_classes=5).eval()
    nn.init.normal_(network.classifier.bias)
    images = images_for(network.encoder, number=3)
    mean = network.encoder(images).sum(1) / 16
    torch.testing.assert_close(network.features(images), mean)
    expected = mean @ network.classifier.weight.T + network.classifier.bias
    torch.testing.assert_close(network(images), expected, rtol=1e-4, atol=1e-5)


def test_features_are_standardized_over_the_batch_and_then_over_what_was_seen() -> None:
    torch.manual_seed(9)
    network = TransferClassifier(tiny_vit(), num_classes=4)
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


def test_a_probe_trains_the_linear_layer_only() -> None:
    encoder = tiny_vit(dropout_rate=0.5)
    network = TransferClassifier(encoder, num_classes=2, freeze_encoder=True)
    before = copy.deepcopy(network.state_dict())
    images = images_for(encoder, number=3)
    for mode in (True, False, True):
        network.train(mode)
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


@pytest.mark.slow
def test_export_for_batches_of_any_size() -> None:
    network = TransferClassifier(tiny_vit(), num_classes=3, freeze_encoder=True).eval()
    images, more = images_for(network.encoder), images_for(network.encoder, number=5)
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(exported.module()(more), network(more), rtol=0, atol=1e-6)


def test_rare_findings_do_not_tie_under_autocast() -> None:
    torch.manual_seed(7)
    network = TransferClassifier(tiny_vit(), 1).eval()
    nn.init.constant_(network.classifier.bias, -4.0)  # a finding in one of fifty images
    nn.init.normal_(network.classifier.weight, std=0.01)
    images = images_for(network.encoder, number=32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(images)
    assert logits.dtype == torch.float32
    assert len(logits.unique()) == 32


@pytest.mark.parametrize(
    ("settings", "error", "named"),
    [
        ({"num_classes": 0}, ValueError, "num_classes"),
        ({"encoder": nn.Identity()}, TypeError, "Identity"),
    ],
)
def test_hostile_settings_fail_at_once(
    settings: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        TransferClassifier(**{"encoder": tiny_vit(), "num_classes": 2, **settings})


def test_a_batch_of_one_names_the_remedy() -> None:
    network = TransferClassifier(tiny_vit(), num_classes=2).train()
    with pytest.raises(ValueError, match="batch_size"):
        network(torch.rand(1, 1, 32, 32))
    assert network.eval()(torch.rand(1, 1, 32, 32)).shape == (1, 2)
