# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Clipping, freezing and the teacher's update inside MONAI's trainer, with and without gradient accumulation."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Events
from monai.engines import SupervisedTrainer
from naive import afire_training
from torch import nn

from monai_afire.handlers import FreezeParameters, GradientClipping, TeacherUpdate

Data = list[dict[str, torch.Tensor]]


def random_data(count: int) -> Data:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(count, 2, 4, generator=generator)
    return [{"image": each[:, :3], "label": 10 * each[:, 3:]} for each in values]


def trainer(
    network: nn.Module, data: Data, handlers: list[Any], epochs: int = 1, **options: Any
) -> SupervisedTrainer:
    return SupervisedTrainer(
        device="cpu",
        max_epochs=epochs,
        train_data_loader=data,
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        loss_function=nn.MSELoss(),
        train_handlers=handlers,
        **options,
    )


def linear_network() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(3, 1)


@pytest.mark.parametrize("accumulation_steps", [1, 2, 3])
def test_clipped_steps_equal_steps_by_hand(accumulation_steps: int) -> None:
    data = random_data(5)  # no multiple of 2 or 3: the epoch's last step has fewer batches
    network, reference = linear_network(), linear_network()
    clipping = GradientClipping(network.parameters(), max_norm=0.7)
    trainer(network, data, [clipping], epochs=2, accumulation_steps=accumulation_steps).run()

    last_norm = 0.0
    for start in [*range(0, 5, accumulation_steps)] * 2:
        reference.zero_grad()
        for item in data[start : start + accumulation_steps]:
            loss = nn.functional.mse_loss(reference(item["image"]), item["label"])
            (loss / accumulation_steps).backward()
        gradients = {name: value.grad.numpy() for name, value in reference.named_parameters()}
        clipped, last_norm = afire_training.clip_grad_norm(gradients, 0.7)
        assert last_norm > 0.7
        for name, parameter in reference.named_parameters():
            parameter.data -= 0.1 * torch.tensor(clipped[name], dtype=torch.float32)
    torch.testing.assert_close(network.state_dict(), reference.state_dict())
    assert float(clipping.norm) == pytest.approx(last_norm, rel=1e-4)  # type: ignore[arg-type]


def test_scaled_gradients_are_unscaled_first_and_only_when_stepping() -> None:
    network = linear_network()
    network.weight.grad = torch.full((1, 3), 4.0)

    def unscale(optimizer: Any) -> None:
        network.weight.grad /= 4  # type: ignore[operator]

    state = SimpleNamespace(iteration=1, epoch_length=4)
    scaler = SimpleNamespace(unscale_=unscale)
    engine = SimpleNamespace(scaler=scaler, optimizer=None, accumulation_steps=2, state=state)
    clipping = GradientClipping(network.parameters(), max_norm=1.0)
    clipping(engine)
    assert clipping.norm is None
    assert torch.equal(network.weight.grad, torch.full((1, 3), 4.0))
    state.iteration = 2
    clipping(engine)
    assert float(clipping.norm) == pytest.approx(3**0.5)  # type: ignore[arg-type]
    np.testing.assert_allclose(network.weight.grad, 3**-0.5, rtol=1e-5)


@pytest.mark.parametrize(
    ("epochs", "asked", "frozen_epochs"), [(4, 0, 0), (4, 2, 2), (3, 2, 1), (1, 1, 0)]
)
def test_frozen_parameters_hold_still_for_at_most_half_of_the_run(
    epochs: int, asked: int, frozen_epochs: int
) -> None:
    network = linear_network()
    history: list[tuple[torch.Tensor, torch.Tensor]] = []
    freeze = FreezeParameters([network.get_parameter("weight")], asked)
    engine = trainer(network, random_data(2), [freeze], epochs=epochs)
    engine.add_event_handler(
        Events.EPOCH_STARTED | Events.COMPLETED,
        lambda: history.append((network.weight.detach().clone(), network.bias.detach().clone())),
    )
    engine.run()
    for epoch, (before, after) in enumerate(itertools.pairwise(history), start=1):
        assert torch.equal(before[0], after[0]) == (epoch <= frozen_epochs)
        assert not torch.equal(before[1], after[1])


class Teacher(nn.Linear):
    """Remembers the student's weights at each update."""

    def __init__(self) -> None:
        super().__init__(3, 1)
        self.seen: list[torch.Tensor] = []

    def update_teacher(self) -> None:
        self.seen.append(self.weight.detach().clone())


@pytest.mark.parametrize(("accumulation_steps", "updates"), [(1, 10), (2, 6), (3, 4), (7, 2)])
def test_teacher_follows_each_optimizer_step_and_nothing_else(
    accumulation_steps: int, updates: int
) -> None:
    network = Teacher()
    after_steps: list[torch.Tensor] = []
    options = {"epochs": 2, "accumulation_steps": accumulation_steps}
    engine = trainer(network, random_data(5), [TeacherUpdate(network)], **options)
    engine.optimizer.register_step_post_hook(
        lambda *_: after_steps.append(network.weight.detach().clone())
    )
    engine.run()
    assert len(network.seen) == updates
    # after, not before the step
    assert all(torch.equal(a, b) for a, b in zip(network.seen, after_steps, strict=True))
