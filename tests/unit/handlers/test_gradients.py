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
from monai.engines.utils import IterationEvents
from naive import afire_training
from torch import nn

from monai_afire.handlers import FreezeParameters, GradientClipping, TeacherUpdate
from monai_afire.handlers.teacher import is_optimizer_step

Data = list[dict[str, torch.Tensor]]


def random_data(count: int) -> Data:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "image": torch.randn(2, 3, generator=generator),
            "label": 10 * torch.randn(2, 1, generator=generator),
        }
        for _ in range(count)
    ]


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


def weight_of(network: nn.Linear) -> list[nn.Parameter]:
    return [network.get_parameter("weight")]


@pytest.mark.parametrize("accumulation_steps", [1, 2, 3])
def test_clipped_steps_equal_steps_by_hand(accumulation_steps: int) -> None:
    data = random_data(5)  # no multiple of 2 or 3: the epoch's last step has fewer batches
    network = linear_network()
    clipping = GradientClipping(network.parameters(), max_norm=0.7)
    trainer(network, data, [clipping], epochs=2, accumulation_steps=accumulation_steps).run()

    reference = linear_network()
    last_norm = 0.0
    for _ in range(2):
        for start in range(0, 5, accumulation_steps):
            reference.zero_grad()
            for item in data[start : start + accumulation_steps]:
                (
                    nn.functional.mse_loss(reference(item["image"]), item["label"])
                    / accumulation_steps
                ).backward()
            gradients = {
                n: p.grad.numpy() for n, p in reference.named_parameters() if p.grad is not None
            }
            clipped, last_norm = afire_training.clip_grad_norm(gradients, 0.7)
            assert last_norm > 0.7
            for name, parameter in reference.named_parameters():
                parameter.data -= 0.1 * torch.tensor(clipped[name], dtype=torch.float32)
    for value, expected in zip(network.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(value, expected)
    assert clipping.norm is not None
    assert clipping.norm.item() == pytest.approx(last_norm, rel=1e-4)


def test_scaled_gradients_are_unscaled_first_and_only_when_stepping() -> None:
    network = linear_network()
    network.weight.grad = torch.full((1, 3), 4.0)
    calls: list[Any] = []

    def unscale(optimizer: Any) -> None:
        calls.append(optimizer)
        assert network.weight.grad is not None
        network.weight.grad /= 4

    state = SimpleNamespace(iteration=1, epoch_length=4)
    engine = SimpleNamespace(
        scaler=SimpleNamespace(unscale_=unscale),
        optimizer="the optimizer",
        accumulation_steps=2,
        state=state,
    )
    clipping = GradientClipping(network.parameters(), max_norm=1.0)
    clipping(engine)
    assert calls == []
    assert clipping.norm is None
    state.iteration = 2
    clipping(engine)
    assert calls == ["the optimizer"]
    assert clipping.norm is not None
    assert clipping.norm.item() == pytest.approx(3**0.5)
    np.testing.assert_allclose(network.weight.grad, 3**-0.5, rtol=1e-5)


@pytest.mark.parametrize(
    ("epochs", "asked", "frozen_epochs"), [(4, 0, 0), (4, 1, 1), (4, 2, 2), (3, 2, 1), (1, 1, 0)]
)
def test_frozen_parameters_hold_still_for_at_most_half_of_the_run(
    epochs: int, asked: int, frozen_epochs: int
) -> None:
    network = linear_network()
    history: list[tuple[torch.Tensor, torch.Tensor]] = []
    engine = trainer(
        network, random_data(2), [FreezeParameters(weight_of(network), asked)], epochs=epochs
    )
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
    engine = trainer(
        network,
        random_data(5),
        [TeacherUpdate(network)],
        epochs=2,
        accumulation_steps=accumulation_steps,
    )
    engine.optimizer.register_step_post_hook(
        lambda *_: after_steps.append(network.weight.detach().clone())
    )
    engine.run()
    assert len(network.seen) == updates
    assert len(after_steps) == updates
    # after, not before the step
    assert all(torch.equal(a, b) for a, b in zip(network.seen, after_steps, strict=True))


@pytest.mark.parametrize("accumulation_steps", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_stepping_iterations_are_those_of_monai(length: int, accumulation_steps: int) -> None:
    network = linear_network()
    predicted: list[bool] = []
    stepped: list[bool] = []
    engine = trainer(
        network, random_data(length), [], epochs=3, accumulation_steps=accumulation_steps
    )

    def predict() -> None:
        predicted.append(is_optimizer_step(engine))
        stepped.append(False)

    engine.add_event_handler(IterationEvents.BACKWARD_COMPLETED, predict)

    def mark(*_: Any) -> None:
        stepped[-1] = True

    engine.optimizer.register_step_post_hook(mark)
    engine.run()
    assert predicted == stepped
    assert len(predicted) == 3 * length
