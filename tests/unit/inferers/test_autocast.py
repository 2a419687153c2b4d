# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Mixed precision on the CPU, alone and inside MONAI's trainer."""

from __future__ import annotations

import torch
from monai.engines import SupervisedTrainer
from torch import nn

from monai_afire.inferers import AutocastInferer


class Weighted(nn.Linear):
    """A network with further arguments, which tells what it got."""

    def forward(self, x: torch.Tensor, factor: float = 1.0, *, offset: float = 0.0) -> torch.Tensor:
        return super().forward(x) * factor + offset


def test_products_are_in_the_chosen_precision() -> None:
    network, x = Weighted(8, 4), torch.rand(2, 8)
    output = AutocastInferer(dtype=torch.float16)(x, network)
    assert output.dtype == torch.float16
    torch.testing.assert_close(output.float(), network(x), rtol=0, atol=0.02)
    assert not torch.is_autocast_enabled("cpu")


def test_trainer_keeps_float32_weights_and_gradients() -> None:
    network = Weighted(3, 1)
    seen: list[torch.dtype] = []
    network.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    before = network.weight.detach().clone()
    SupervisedTrainer(
        device="cpu",
        max_epochs=1,
        train_data_loader=[{"image": torch.ones(2, 3), "label": torch.zeros(2, 1)}],
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        loss_function=lambda output, label: (output.float() - label).square().mean(),
        inferer=AutocastInferer(),
    ).run()
    assert seen == [torch.bfloat16]
    assert network.weight.dtype == torch.float32
    assert network.weight.grad is not None
    assert network.weight.grad.dtype == torch.float32
    assert not torch.equal(network.weight, before)
