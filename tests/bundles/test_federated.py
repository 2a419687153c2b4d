# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bundles as clients of federated learning, through MONAI's ``MonaiAlgo``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles.bundle_runs import TINY, TINY_ENCODER, copy_bundles
from monai.fl.client import MonaiAlgo
from monai.fl.utils.constants import ExtraItems, ModelType, WeightType
from monai.fl.utils.exchange_object import ExchangeObject

Weights = dict[str, torch.Tensor]

TASK = {
    **TINY_ENCODER,
    "encoder": "vit",
    "batch_size": 4,
    "train::dataloader::min_batches": 2,
}
SETTINGS: dict[str, dict[str, Any]] = {"afire": dict(TINY), "radiograph_classification": TASK}
SCHEDULES = {
    "afire": ("lr_schedule", "weight_decay_schedule", "teacher_decay_schedule"),
    "radiograph_classification": ("lr_schedule",),
}
METRICS = {
    "afire": {"restoration_gain", "position_accuracy"},
    "radiograph_classification": {"mean_auc"},
}
NUM_IMAGES = (12, 4)  # of the two clients, which therefore weigh 3/4 and 1/4
NUM_ROUNDS = 3


@pytest.fixture(autouse=True)
def given_back_precision() -> Any:
    """The bundles tune the process; other tests want it as it was."""
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


def join(
    folder: Path, bundle: str, client: int, send_weight_diff: bool = False, **overrides: Any
) -> MonaiAlgo:
    """A client with a bundle, images and a seed of its own."""
    root = copy_bundles(folder / f"client_{client}") / "bundles" / bundle
    phantom = {
        "num_patients": {"training": NUM_IMAGES[client], "validation": 4},
        "image_size": 32,
        "seed": client,
    }
    settings = {
        **SETTINGS[bundle],
        **{f"train::{name}::epochs": NUM_ROUNDS for name in SCHEDULES[bundle]},
        "bundle_root": str(root),
        "output_dir": str(root / "output"),
        "items::phantom::folder": str(root / "data/phantom"),
        "seed": client,
        "phantom": {**phantom, "abnormal_fraction": 0.0 if bundle == "afire" else 0.75},
        **overrides,
    }
    algo = MonaiAlgo(
        bundle_root=str(root),
        local_epochs=1,
        send_weight_diff=send_weight_diff,
        train_kwargs=dict(settings),
        config_evaluate_filename="configs/train.json",
        eval_kwargs=dict(settings),
        final_model_filepath="output/models/model.pt",
    )
    algo.initialize({ExtraItems.CLIENT_NAME: f"client_{client}"})
    return algo


def average(weights: Sequence[Weights], counts: Sequence[int]) -> Weights:
    """FedAvg: the mean of the clients' weights, each counting as often as it has images."""
    shares = torch.tensor(counts) / sum(counts)
    return {
        name: sum(share * client[name] for share, client in zip(shares, weights, strict=True)).to(
            tensor.dtype
        )
        for name, tensor in weights[0].items()
    }


def exchanged(algo: MonaiAlgo) -> Weights:
    return {name: tensor.clone() for name, tensor in algo.get_weights().weights.items()}


@pytest.mark.slow
@pytest.mark.parametrize("bundle", ["afire", "radiograph_classification"])
def test_two_clients_learn_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: str
) -> None:
    monkeypatch.chdir(tmp_path)
    clients = [join(tmp_path, bundle, client) for client in range(2)]
    global_weights = exchanged(clients[0])
    history, rates = [], []
    for _ in range(NUM_ROUNDS):
        for client in clients:
            client.train(ExchangeObject(weights=global_weights))
        local = [exchanged(client) for client in clients]
        counts = [len(client.train_workflow.train_dataset_data) for client in clients]
        assert counts == list(NUM_IMAGES)
        global_weights = average(local, counts)
        for name, value in global_weights.items():
            # a finding without a positive in a client's validation has no threshold
            assert value.isfinite().all() or name.endswith("thresholds")
            if value.is_floating_point():
                expected = 0.75 * local[0][name] + 0.25 * local[1][name]
                torch.testing.assert_close(value, expected, equal_nan=True)
        metrics = [
            client.evaluate(ExchangeObject(weights=global_weights)).metrics for client in clients
        ]
        assert all(METRICS[bundle] <= set(values) for values in metrics)
        history.append((local, clients[0].trainer.state.epoch))
        rates.append(clients[0].trainer.optimizer.param_groups[0]["lr"])
    assert [epoch for _, epoch in history] == [1, 2, 3], (
        "a round goes on where the one before has stopped"
    )
    assert rates[0] > rates[1] > 10 * rates[2], (
        "the learning rate falls over all rounds, not within the first"
    )
    first, *_, last = (local for local, _ in history)
    trained = [
        name
        for name, value in first[0].items()
        if value.is_floating_point() and "thresholds" not in name
    ]
    assert any(not torch.equal(first[0][name], first[1][name]) for name in trained), (
        "the clients' images differ"
    )
    assert any(not torch.equal(first[0][name], last[0][name]) for name in trained)
    assert {path.name for path in tmp_path.iterdir()} == {"client_0", "client_1"}, (
        "nothing beside the clients' bundles"
    )
    for client in clients:
        saved = client.get_weights({ExtraItems.MODEL_TYPE: ModelType.FINAL_MODEL}).weights
        assert saved.keys() == global_weights.keys()
        client.finalize()


@pytest.mark.slow
def test_differences_of_weights_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = join(tmp_path, "afire", 0, send_weight_diff=True)
    received = {
        name: torch.zeros_like(value) for name, value in client.trainer.network.state_dict().items()
    }
    client.train(ExchangeObject(weights=received))
    client.train(ExchangeObject(weights=received))
    sent = client.get_weights()
    assert sent.weight_type == WeightType.WEIGHT_DIFF
    trained = client.trainer.network.state_dict()
    for name, difference in sent.weights.items():
        torch.testing.assert_close(difference, trained[name], rtol=0, atol=0)  # from zero
