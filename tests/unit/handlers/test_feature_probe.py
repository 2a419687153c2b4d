# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The probe of frozen features: what it reports, and that the run does not notice it."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from monai.data import DataLoader, Dataset
from torch import nn

from monai_afire.handlers.feature_probe import KNNProbe
from monai_afire.metrics.multilabel import mean_auc
from monai_afire.metrics.nearest_neighbors import knn_predict
from monai_afire.networks.nets.ace import ACE
from monai_afire.networks.nets.afire import AFiRe
from monai_afire.networks.nets.dino import DINO
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.nets.peac import PEAC

NAN = math.nan


def encoder() -> ViTEncoder:
    return ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)


class Student(nn.Module):
    """A network of parts in different modes, with what a probe could disturb."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.frozen = nn.Dropout(0.5).eval()


def batches(seed: int, count: int = 3, labels: int = 2) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        label = torch.randint(0, 2, (8, labels), generator=generator).float()
        label[torch.rand(label.shape, generator=generator) < 0.2] = NAN
        image = torch.rand(8, 4, 6, generator=generator)
        image[:, 0] += label.nan_to_num(0.5)[:, :1]
        made.append({"image": image, "label": label})
    return made


def probed(probe: KNNProbe, epochs: int = 1) -> Engine:
    engine = Engine(lambda engine, batch: None)
    probe.attach(engine)
    engine.run([0], max_epochs=epochs)
    return engine


@pytest.mark.parametrize("policy", ["ignore", "ones"])
def test_equals_its_parts(policy: str) -> None:
    torch.manual_seed(0)
    network, train, test = Student(), batches(0), batches(1)
    train[0]["label"][0] = -1.0
    engine = probed(
        KNNProbe(
            network, train, test, num_neighbors=5, temperature=0.2, name="auc", uncertain=policy
        )
    )
    network.eval()
    features = [
        torch.cat([network.encoder(b["image"]).mean(1) for b in part]) for part in (train, test)
    ]
    labels = [torch.cat([b["label"] for b in part]) for part in (train, test)]
    labels[0][labels[0] == -1] = NAN if policy == "ignore" else 1.0
    expected = mean_auc(labels[1], knn_predict(features[0], labels[0], features[1], 5, 0.2))
    assert engine.state.metrics == {"auc": expected}


@pytest.mark.parametrize("network", [AFiRe, PEAC, ACE, DINO])
def test_works_in_every_method_and_asks_the_teacher(network: Any) -> None:
    torch.manual_seed(0)
    options = {"num_clusters": 8, "head_dim": 12, "decoder_layers": 1} if network is AFiRe else {}
    if network is DINO:
        options = {"num_prototypes": 8, "head_dim": 12, "bottleneck_dim": 4}
    net = network(encoder(), **options)
    with torch.no_grad():
        net.encoder.norm.weight.fill_(NAN)  # the student's features would be no numbers
    state = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    image = torch.rand(12, 1, 32, 32)
    data = [{"image": image, "label": (image.mean((1, 2, 3)) > image.mean()).float()}]
    auc = probed(KNNProbe(net, data, data, num_neighbors=3)).state.metrics["knn_auc"]
    assert 0.5 < auc <= 1
    assert [module.training for module in net.modules()] == modes
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0, equal_nan=True)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_learned_features_beat_chance_and_noise_does_not() -> None:
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(0, 2, (200, 1), generator=generator).float()
    signal = torch.cat([label, 1 - label], 1) + 0.3 * torch.randn(200, 2, generator=generator)
    noise = torch.randn(200, 2, generator=generator)
    for image, low, high in ((signal, 0.97, 1.0), (noise, 0.3, 0.7)):
        parts = [
            {"image": image[rows, None], "label": label[rows]}
            for rows in (slice(100), slice(100, 200))
        ]
        network = nn.ModuleDict({"encoder": nn.Identity()})
        assert (
            low < probed(KNNProbe(network, parts[:1], parts[1:])).state.metrics["knn_auc"] <= high
        )


def draws() -> list[float]:
    return [float(torch.rand(())), random.random(), float(np.random.rand())]  # noqa: NPY002


def test_random_state_is_untouched() -> None:
    class Noisy(Dataset):
        def __getitem__(self, index: Any) -> Any:
            return {"image": torch.rand(4, 6) + sum(draws()), "label": torch.tensor([index % 2])}

    loader = DataLoader(Noisy(range(8)), batch_size=4, shuffle=True)
    probe = KNNProbe(Student(), loader, loader)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    state = torch.get_rng_state()
    expected = draws()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.set_rng_state(state)
    engine = Engine(lambda engine, batch: None)
    engine.state.metrics = {}
    probe(engine)
    assert "knn_auc" in engine.state.metrics
    assert draws() == expected


def test_labels_without_votes_and_without_truth() -> None:
    train, test = batches(0, labels=3), batches(1, labels=3)
    network = Student()
    expected = probed(KNNProbe(network, train, test)).state.metrics["knn_auc"]
    for part, column in ((train, 3), (test, 4)):
        for batch in part:
            batch["label"] = torch.cat([batch["label"], torch.zeros(8, 2)], 1)
            batch["label"][:, column] = NAN
    assert probed(KNNProbe(network, train, test)).state.metrics["knn_auc"] == expected
    for batch in test:
        batch["label"][:] = NAN
    assert math.isnan(probed(KNNProbe(network, train, test)).state.metrics["knn_auc"])


def test_a_diverged_network_gives_nan_and_does_not_stop_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = batches(0)
    probe = KNNProbe(Student(), data, data, lambda net, images: images.mean(1) * NAN)
    assert math.isnan(probed(probe).state.metrics["knn_auc"])
    assert "not finite" in caplog.text
