# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A trainer refuses to accumulate over more iterations than an epoch has."""

from __future__ import annotations

import pytest
import torch
from torch import nn, optim

from monai_afire.engines import TrackedTrainer


def trainer(num_batches: int, accumulation_steps: int) -> TrackedTrainer:
    network = nn.Linear(2, 1)
    return TrackedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        network=network,
        loss_function=nn.MSELoss(),
        optimizer=optim.SGD(network.parameters(), lr=0.1),
        train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}] * num_batches,
        accumulation_steps=accumulation_steps,
        decollate=False,
    )


def test_accumulation_beyond_an_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"accumulation_steps is 4, but an epoch has 3 iterations.* give at most 3"):
        trainer(num_batches=3, accumulation_steps=4)


@pytest.mark.parametrize("accumulation_steps", [1, 2, 3])
def test_accumulation_within_an_epoch_runs(accumulation_steps: int) -> None:
    trainer(num_batches=3, accumulation_steps=accumulation_steps).run()
