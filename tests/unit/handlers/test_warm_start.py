# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The warm start sets the head to a linear probe, and changes nothing else of the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ignite.engine import Engine
from torch import nn

from monai_afire.handlers import HeadWarmStart
from monai_afire.metrics import fit_linear_probe
from monai_afire.networks import TransferClassifier, ViTEncoder


def classifier(**arguments: Any) -> TransferClassifier:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)
    return TransferClassifier(encoder, num_classes=2, **arguments)


def batches(seed: int) -> list[dict[str, torch.Tensor]]:
    """Bright images have the first finding; the second is uncertain in one image."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(12, 1, 16, 16, generator=generator)
    images[:6] *= 0.3
    labels = torch.stack([torch.arange(12) >= 6, torch.arange(12) % 2 == 0], 1).float()
    labels[3, 1] = -1
    return [{"image": images[k::2], "label": labels[k::2]} for k in range(2)]


def run(handler: HeadWarmStart) -> Engine:
    engine = Engine(lambda engine, batch: None)
    handler.attach(engine)
    engine.run([0, 0], max_epochs=2)
    return engine


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_the_network_scores_as_the_probe(spread: float) -> None:
    network = classifier().train()
    for parameter in network.encoder.norm.parameters():
        parameter.data *= spread
    run(HeadWarmStart(network, batches(0), batches(1)))
    assert network.training
    network.eval()
    with torch.no_grad():
        features = [
            torch.cat([network.features(b["image"]) for b in batches(seed)]) for seed in (0, 1)
        ]
        logits = network(torch.cat([b["image"] for b in batches(1)]))
    labels = torch.cat([b["label"] for b in batches(0)])
    labels = labels.where(labels != -1, torch.nan)
    probe = fit_linear_probe(features[0], labels, features[1], labels)
    torch.testing.assert_close(
        logits.double(), torch.from_numpy(probe.logits(features[1])), atol=1e-3, rtol=1e-3
    )


def test_a_network_for_several_gpus_starts_warm() -> None:
    """``synchronized`` exchanges the norm after the handler was built, or before."""
    heads = []
    for early, late in ((False, False), (True, False), (False, True)):
        network = classifier()
        if early:
            nn.SyncBatchNorm.convert_sync_batchnorm(network)
        handler = HeadWarmStart(network, batches(0), batches(1))
        if late:
            nn.SyncBatchNorm.convert_sync_batchnorm(network)
        handler.fit()
        heads.append([*network.standardize.buffers(), network.classifier.weight])
    torch.testing.assert_close(heads[1:], [heads[0], heads[0]])


def test_validation_comes_once_before_training_and_randomness_is_unchanged() -> None:
    seen: list[int] = []
    validator = Engine(lambda engine, batch: seen.append(torch.randint(10, (1,)).item()))
    validator_run = validator.run
    validator.run = lambda *arguments: validator_run([0])  # type: ignore[method-assign, assignment]
    handler = HeadWarmStart(classifier(), batches(0), batches(1), validator)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(handler)
    torch.testing.assert_close(torch.rand(3), expected)
    assert len(seen) == 1


def test_a_resumed_run_keeps_its_head() -> None:
    network, engine = classifier(), Engine(lambda engine, batch: None)
    before = network.classifier.weight.clone()
    HeadWarmStart(network, batches(0), batches(1)).attach(engine)
    engine.load_state_dict({"epoch_length": 2, "max_epochs": 2, "iteration": 1})
    engine.run([0, 0])
    assert torch.equal(network.classifier.weight, before)


def test_multiclass_and_frozen_networks_start_warm() -> None:
    network = classifier(label_kind="multiclass", freeze_encoder=True)
    one_hot = [
        {**b, "label": torch.nn.functional.one_hot((b["image"].mean((1, 2, 3)) > 0.3).long(), 2)}
        for b in batches(0)
    ]
    run(HeadWarmStart(network, one_hot, one_hot))
    network.eval()
    with torch.no_grad():
        for batch in one_hot:
            assert torch.equal(network(batch["image"]).argmax(1), batch["label"].argmax(1))
