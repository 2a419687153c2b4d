# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Values that change over training: learning rate, weight decay, EMA decay, temperatures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from ignite.engine import Engine, Events
from torch.optim import Optimizer


def cosine_schedule(
    current_step: int, total_steps: int, start: float, end: float, warmup_steps: int = 0
) -> float:
    r"""
    Half a cosine from start to end, after an optional linear warm-up.

    .. math:: v(t) = end + \frac{start - end}{2} \left(1 + \cos \pi \frac{t - w}{T - w}\right)

    for step t after w warm-up steps of T steps in all. It also serves as ``value_calculator`` of MONAI's
    ``ParamSchedulerHandler``. It has no state: a resumed run continues the schedule.

    Args:
        current_step: steps counted from 1, as ignite counts iterations; the first step has t = 0.
        total_steps: T; from the last step on the value is ``end``.
        start: value after the warm-up.
        end: value at the last step.
        warmup_steps: w, steps of the linear ramp from 0 up to ``start``, fewer than T.

    Returns:
        The value at this step.

    Example:
        >>> [round(cosine_schedule(step, total_steps=5, start=1.0, end=0.0), 3) for step in range(1, 6)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
    """
    step = current_step - 1
    if step < warmup_steps:
        return start * step / warmup_steps
    progress = min((step - warmup_steps) / max(total_steps - 1 - warmup_steps, 1), 1.0)
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def linear_schedule(current_step: int, total_steps: int, start: float, end: float) -> float:
    """A straight line from start at step 1 to end after ``total_steps`` steps, and ever after."""
    return start + (end - start) * min((current_step - 1) / total_steps, 1.0)


_SHAPES = ("cosine", "linear")


class _EpochSchedule(ABC):
    """Base of values that follow the progress of the trainer, which knows the number of steps of an epoch."""

    def __init__(
        self,
        epochs: int | None,
        start: float,
        end: float,
        warmup_epochs: int = 0,
        shape: str = "cosine",
    ) -> None:
        self.epochs = epochs
        self.start = start
        self.end = end
        self.warmup_epochs = warmup_epochs
        self.shape = shape

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.ITERATION_STARTED, self)

    def __call__(self, engine: Engine) -> None:
        """Set the value for the coming step."""
        if self.epochs is None:
            self.epochs = engine.state.max_epochs
        self.set_value(self.value(engine.state.iteration, engine.state.epoch_length or 1))

    def value(self, step: int, epoch_length: int) -> float:
        """The value at a step, counted from 1, with so many steps in an epoch."""
        epochs = self.epochs or 1
        if self.shape == "linear":
            return linear_schedule(step, epochs * epoch_length, self.start, self.end)
        warmup = min(self.warmup_epochs, epochs // 2)
        return cosine_schedule(
            step, epochs * epoch_length, self.start, self.end, warmup * epoch_length
        )

    @abstractmethod
    def set_value(self, value: float) -> None:
        """Set a value of :meth:`value`."""


class OptimizerSchedule(_EpochSchedule):
    """
    A setting of an optimizer's groups that follows :func:`cosine_schedule`, set before every step.

    The learning rate of a group is the schedule's value times the group's "lr_scale", 1 without one
    (:func:`monai_afire.optimizers.layer_decay_groups`). Weight decay is set only in groups that have some.

    Args:
        optimizer: its groups are changed.
        name: "lr" or "weight_decay", or another setting of the groups.
        epochs: of the whole run; None for those of the trainer.
        start: value after the warm-up; None for the setting of the optimizer.
        end: value at the last step.
        warmup_epochs: epochs of the linear ramp from 0 to ``start``; at most half of the run.

    Example:
        >>> from torch import nn, optim
        >>> optimizer, engine = optim.SGD(nn.Linear(2, 1).parameters(), lr=1.0), Engine(lambda engine, batch: None)
        >>> OptimizerSchedule(optimizer, "lr", end=0.0).attach(engine)
        >>> _ = engine.run([0, 0, 0])
        >>> optimizer.param_groups[0]["lr"]
        0.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        name: str,
        epochs: int | None = None,
        start: float | None = None,
        end: float = 0.0,
        warmup_epochs: int = 0,
    ) -> None:
        first = optimizer.defaults[name] if start is None else start
        super().__init__(epochs, first, end, warmup_epochs)
        self.optimizer = optimizer
        self.name = name
        self.exempt = [
            name == "weight_decay" and not group[name] for group in optimizer.param_groups
        ]

    def set_value(self, value: float) -> None:
        """Set a value of :meth:`value` in the groups."""
        for group, is_exempt in zip(self.optimizer.param_groups, self.exempt, strict=True):
            if not is_exempt:
                group[self.name] = (
                    value * group.get("lr_scale", 1.0) if self.name == "lr" else value
                )


class AttributeSchedule(_EpochSchedule):
    """
    A number that an object keeps as an attribute and that changes over training, e.g. a network's teacher decay.

    Args:
        owner: the object.
        name: of the attribute, which must exist.
        epochs: until ``end`` is reached; None for those of the trainer.
        start: value at the first step; None for the present one.
        end: value after them.
        shape: "cosine" or "linear".

    Raises:
        AttributeError: when there is no such attribute.
        ValueError: for another shape.
    """

    def __init__(
        self,
        owner: Any,
        name: str,
        epochs: int | None = None,
        start: float | None = None,
        end: float = 1.0,
        shape: str = "cosine",
    ) -> None:
        present = getattr(owner, name)
        if shape not in _SHAPES:
            raise ValueError(f"shape must be one of {_SHAPES}, got {shape!r}")
        super().__init__(epochs, present if start is None else start, end, shape=shape)
        self.owner = owner
        self.name = name

    def set_value(self, value: float) -> None:
        """Set the attribute to a value of :meth:`value`."""
        setattr(self.owner, self.name, value)
