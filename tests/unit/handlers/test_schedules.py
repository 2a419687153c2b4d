# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Schedules against the reference, alone and inside MONAI's trainer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from naive import afire_training

from monai_afire.handlers.schedules import (
    AttributeSchedule,
    OptimizerSchedule,
    cosine_schedule,
    linear_schedule,
)


@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (7, 2), (20, 5), (10, 8)])
@pytest.mark.parametrize(("start", "end"), [(0.99, 1.0), (5e-4, 1e-6)])
def test_cosine_equals_the_reference(total: int, warmup: int, start: float, end: float) -> None:
    for step in range(1, total + 4):  # ours counts from 1, the reference from 0
        value = cosine_schedule(step, total, start, end, warmup)
        expected = afire_training.cosine_schedule(step - 1, total, start, end, warmup)
        if total - 1 - warmup <= 0 and step > total:
            expected = end  # after a schedule without room for the cosine
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("steps_per_epoch", [1, 3])
def test_linear_equals_the_teacher_temperature_of_the_paper(steps_per_epoch: int) -> None:
    total = 30 * steps_per_epoch
    for step in range(1, 40 * steps_per_epoch):
        expected = afire_training.teacher_temperature((step - 1) / steps_per_epoch)
        assert linear_schedule(step, total, 0.04, 0.07) == pytest.approx(expected, abs=1e-12)


def values_during(epochs: int, handler: Any, read: Callable[[], Any], steps: int = 3) -> list[Any]:
    """What each step of so many epochs is given."""
    seen: list[Any] = []
    engine = Engine(lambda engine, batch: seen.append(read()))
    handler.attach(engine)
    engine.run(range(steps), max_epochs=epochs)
    return seen


def two_groups() -> torch.optim.Optimizer:
    decayed, exempt = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    first = {"params": [decayed], "weight_decay": 0.1, "lr_scale": 0.5}
    return torch.optim.AdamW([first, {"params": [exempt], "weight_decay": 0.0}], lr=7.0)


def test_learning_rate_of_a_group_is_scaled() -> None:
    groups = (optimizer := two_groups()).param_groups
    handler = OptimizerSchedule(optimizer, "lr", epochs=2, start=1.0, end=0.0, warmup_epochs=1)
    rates = values_during(2, handler, lambda: [group["lr"] for group in groups])
    expected = [cosine_schedule(step, 6, 1.0, 0.0, 3) for step in range(1, 7)]
    np.testing.assert_allclose(rates, [[value / 2, value] for value in expected])


def test_weight_decay_of_exempt_parameters_stays_zero() -> None:
    groups = (optimizer := two_groups()).param_groups
    handler = OptimizerSchedule(optimizer, "weight_decay", epochs=1, start=0.1, end=0.5)
    decays = values_during(1, handler, lambda: [group["weight_decay"] for group in groups])
    np.testing.assert_allclose(decays, [[0.1, 0], [0.3, 0], [0.5, 0]])


@pytest.mark.parametrize(
    ("shape", "function"), [("cosine", cosine_schedule), ("linear", linear_schedule)]
)
def test_attribute_follows_its_schedule(shape: str, function: Any) -> None:
    owner = SimpleNamespace(value=None)
    handler = AttributeSchedule(owner, "value", epochs=2, start=1.0, end=3.0, shape=shape)
    values = values_during(3, handler, lambda: owner.value, steps=2)
    assert values == [function(step, 4, 1.0, 3.0) for step in range(1, 7)]
    assert values[-1] == 3.0


def test_attribute_and_shape_must_exist() -> None:
    with pytest.raises(AttributeError, match="'teacher_decai'"):
        AttributeSchedule(SimpleNamespace(teacher_decay=1), "teacher_decai", 1, 0.0, 1.0)
    with pytest.raises(ValueError, match="cosine"):
        AttributeSchedule(SimpleNamespace(value=1), "value", 1, 0.0, 1.0, shape="step")


def test_schedules_follow_the_epochs_of_the_run_that_they_are_in() -> None:
    """Another batch size after resuming: the last step has the last value all the same."""
    optimizer = two_groups()
    for steps in (2, 5):
        handler = OptimizerSchedule(optimizer, "lr", epochs=3, start=1.0, end=0.25, warmup_epochs=1)
        rates = values_during(3, handler, lambda: optimizer.param_groups[1]["lr"], steps=steps)
        assert rates[0] == 0.0
        assert rates[steps] == 1.0
        assert rates[-1] == pytest.approx(0.25)


def test_schedules_of_a_given_length_span_all_calls_of_a_trainer() -> None:
    """As in federated learning, where each round is a call."""
    optimizer, rates = two_groups(), []
    engine = Engine(lambda engine, batch: rates.append(optimizer.param_groups[1]["lr"]))
    OptimizerSchedule(optimizer, "lr", epochs=4, start=1.0, end=0.0).attach(engine)
    for done in range(1, 5):
        engine.run([0, 0], max_epochs=done)
    assert rates == pytest.approx([cosine_schedule(step, 8, 1.0, 0.0) for step in range(1, 9)])


@pytest.mark.parametrize(("epochs", "warmup_epochs", "steps_of_ramp"), [(1, 5, 0), (4, 3, 6)])
def test_a_warm_up_leaves_half_of_a_short_run(
    epochs: int, warmup_epochs: int, steps_of_ramp: int
) -> None:
    """Three steps an epoch; the ramp ends at the start value."""
    optimizer = two_groups()
    settings = {"start": 1.0, "end": 0.0, "warmup_epochs": warmup_epochs}
    handler = OptimizerSchedule(optimizer, "lr", epochs=epochs, **settings)
    rates = values_during(epochs, handler, lambda: optimizer.param_groups[1]["lr"])
    ramp = [step / steps_of_ramp for step in range(steps_of_ramp)]
    assert rates[: steps_of_ramp + 1] == [*ramp, 1.0]
