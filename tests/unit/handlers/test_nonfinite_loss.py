# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A loss that is no number stops the run before the step, with the names of the images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.data import MetaTensor
from monai.engines import SupervisedTrainer
from torch import nn

from monai_afire.handlers import NonFiniteLoss

FINE, NAN, INFINITE = (torch.full((2, 1), value) for value in (0.0, float("nan"), float("inf")))
FILES = ["a.png", "b.png"]


@pytest.mark.parametrize("accumulation_steps", [1, 2])
@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ({"image": MetaTensor(NAN, meta={"filename_or_obj": FILES})}, r"a\.png, b\.png"),
        ({"image": INFINITE, "file": FILES}, r"a\.png, b\.png"),
        ({"image": NAN}, "iteration 3"),
    ],
)
def test_a_loss_that_is_not_finite_names_its_batch_before_the_step(
    batch: dict[str, Any], named: str, accumulation_steps: int
) -> None:
    network = nn.Linear(1, 1)
    nn.init.zeros_(network.bias)
    fine = {"image": FINE}
    batches = [{**each, "label": FINE} for each in (fine, fine, batch, fine)]
    trainer = SupervisedTrainer(
        device="cpu",
        max_epochs=1,
        train_data_loader=batches,
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        loss_function=lambda pred, label: -pred.mean(),
        accumulation_steps=accumulation_steps,
        train_handlers=[NonFiniteLoss()],
        decollate=False,
    )
    with pytest.raises(FloatingPointError, match=named):
        trainer.run()
    assert network.bias.item() == 2 // accumulation_steps
