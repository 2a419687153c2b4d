# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A loss that is no number stops the run with the names of the images; ``test_training.py`` has the steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.data import MetaTensor
from monai.engines import SupervisedTrainer
from torch import nn

from monai_afire.handlers import NonFiniteLoss


class Loss(nn.Module):
    """Infinite, with terms, as the methods' losses have them."""

    def forward(self, pred: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        self.terms = {"square": ((pred - label) ** 2).mean()}
        return self.terms["square"] + float("inf")


IMAGE, LABEL = torch.zeros(2, 1), torch.zeros(2, 1)
READ = MetaTensor(IMAGE, meta={"filename_or_obj": ["a.png", "b.png"]})


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"image": READ}, r"Images of the batch: a\.png, b\.png\."),
        ({"image": READ, "file": ["c.png", "d.png"]}, r"Images of the batch: c\.png, d\.png\."),
        ({"image": IMAGE}, r"iteration 1 \(epoch 1\), square \d"),
    ],
)
def test_the_message_names_images_and_terms(batch: dict[str, Any], words: str) -> None:
    network = nn.Linear(1, 1)
    trainer = SupervisedTrainer(
        device="cpu",
        max_epochs=1,
        train_data_loader=[{**batch, "label": LABEL}],
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        loss_function=Loss(),
        train_handlers=[NonFiniteLoss()],
        decollate=False,
    )
    with pytest.raises(FloatingPointError, match=words):
        trainer.run()
