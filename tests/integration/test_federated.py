# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A bundle as the client of federated learning, through MONAI's ``MonaiAlgo``: one round after another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from monai.fl.client import MonaiAlgo
from monai.fl.utils.constants import ExtraItems, ModelType
from monai.fl.utils.exchange_object import ExchangeObject

from integration.bundle_runs import TINY, copy_bundles

NUM_ROUNDS = 3
SCHEDULES = ("lr_schedule", "weight_decay_schedule", "teacher_decay_schedule")


def joined(folder: Path) -> MonaiAlgo:
    """A client with a bundle of its own."""
    root = copy_bundles(folder) / "bundles/afire"
    settings = {
        **TINY,
        **{f"train::{name}::epochs": NUM_ROUNDS for name in SCHEDULES},
        "bundle_root": str(root),
        "output_dir": str(root / "output"),
        "items::phantom::folder": str(root / "data/phantom"),
    }
    client = MonaiAlgo(
        bundle_root=str(root),
        local_epochs=1,
        send_weight_diff=False,
        train_kwargs=dict(settings),
        config_evaluate_filename="configs/train.json",
        eval_kwargs=dict(settings),
        final_model_filepath="output/models/model.pt",
    )
    client.initialize({ExtraItems.CLIENT_NAME: "client"})
    return client


@pytest.mark.slow
def test_rounds_go_on_where_the_one_before_stopped(folder: Path) -> None:
    client = joined(folder)
    epochs, rates, sent = [], [], [client.get_weights().weights]
    for _ in range(NUM_ROUNDS):
        weights = {name: value.clone() for name, value in sent[-1].items()}
        client.train(ExchangeObject(weights=weights))
        sent.append({name: v.clone() for name, v in client.get_weights().weights.items()})
        metrics = client.evaluate(ExchangeObject(weights=sent[-1])).metrics
        assert {"restoration_gain", "position_accuracy"} <= set(metrics)
        epochs.append(client.trainer.state.epoch)
        rates.append(client.trainer.optimizer.param_groups[0]["lr"])
    assert epochs == [1, 2, 3]
    assert rates[0] > rates[1] > 10 * rates[2], "the rate falls over all rounds"
    assert all(bool(value.isfinite().all()) for value in sent[-1].values())
    name = "encoder.blocks.0.mlp.linear1.weight"
    assert not torch.equal(sent[1][name], sent[-1][name])
    saved = client.get_weights({ExtraItems.MODEL_TYPE: ModelType.FINAL_MODEL}).weights
    assert saved.keys() == sent[-1].keys()
    client.finalize()
    assert {path.name for path in folder.iterdir()} == {"bundles"}
