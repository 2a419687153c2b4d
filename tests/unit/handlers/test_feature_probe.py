# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The probe of frozen features: what it reports, and that the run does not notice it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from monai.data import DataLoader, Dataset
from torch import nn

from monai_afire.handlers import KNNProbe
from monai_afire.metrics import knn_predict, mean_auc
from monai_afire.networks import AFiRe, ViTEncoder

NAN = math.nan


class Student(nn.Module):
    """A network of parts in different modes, with what a probe could disturb."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.frozen = nn.Dropout(0.5).eval()


def batches(seed: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(3):
        label = torch.randint(0, 2, (8, 2), generator=generator).float()
        label[torch.rand(label.shape, generator=generator) < 0.2] = NAN
        image = torch.rand(8, 4, 6, generator=generator)
        image[:, 0] += label.nan_to_num(0.5)[:, :1]
        made.append({"image": image, "label": label})
    return made


def probed(*arguments: Any, **options: Any) -> float:
    engine = Engine(lambda engine, batch: None)
    KNNProbe(*arguments, **options).attach(engine)
    engine.run([0])
    return engine.state.metrics["knn_auc"]


def test_equals_its_parts() -> None:
    torch.manual_seed(0)
    network, train, test = Student(), batches(0), batches(1)
    train[0]["label"][0] = -1.0
    found = probed(network, train, test, num_neighbors=5)
    network.eval()
    features = [
        torch.cat([network.encoder(b["image"]).mean(1) for b in part]) for part in (train, test)
    ]
    labels = [torch.cat([b["label"] for b in part]) for part in (train, test)]
    labels[0][labels[0] == -1] = NAN
    assert found == mean_auc(labels[1], knn_predict(features[0], labels[0], features[1], 5))
    network.encoder[0].weight.data.fill_(NAN)
    assert math.isnan(probed(network, train, test)), "a diverged network does not stop the run"


def test_the_teacher_is_asked_and_nothing_of_the_network_changes() -> None:
    torch.manual_seed(0)
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    network = AFiRe(encoder, num_clusters=8, head_dim=12, decoder_layers=1)
    with torch.no_grad():
        network.encoder.norm.weight.fill_(NAN)  # the student's features would be no numbers
    state = {name: value.clone() for name, value in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    image = torch.rand(12, 1, 32, 32)
    data = [{"image": image, "label": (image.mean((1, 2, 3)) > image.mean()).float()}]
    assert 0.5 < probed(network, data, data, num_neighbors=3) <= 1
    assert [module.training for module in network.modules()] == modes
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0, equal_nan=True)


def draws() -> list[float]:
    return [float(torch.rand(())), random.random(), float(np.random.rand())]  # noqa: NPY002


def test_random_state_is_untouched() -> None:
    class Noisy(Dataset):
        def __getitem__(self, index: Any) -> Any:
            return {"image": torch.rand(4, 6) + sum(draws()), "label": torch.tensor([index % 2])}

    def draws_after(act: Callable[[], object]) -> list[float]:
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        act()
        return draws()

    loader = DataLoader(Noisy(range(8)), batch_size=4, shuffle=True)
    network = Student()
    assert draws_after(lambda: probed(network, loader, loader)) == draws_after(lambda: None)
