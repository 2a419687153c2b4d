# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The teacher follows the student."""

from __future__ import annotations

from typing import Any, Protocol

from ignite.engine import Engine
from monai.engines.utils import IterationEvents

__all__ = ["TeacherUpdate", "is_optimizer_step"]


class HasTeacher(Protocol):
    """A network with a teacher that moves towards its student."""

    def update_teacher(self, decay: float) -> None:
        """Move the teacher."""


class TeacherUpdate:
    """
    Move the network's teacher towards its student after every optimizer step.

    Calls ``network.update_teacher(decay)``. With gradient accumulation only iterations that step count.

    Args:
        network: a method's network with ``update_teacher``, unwrapped (not the ``DistributedDataParallel`` around it).
        decay: λ of the moving average, in [0, 1]; usually set by a schedule while training.

    Example:
        >>> from monai.handlers import ParamSchedulerHandler
        >>> from monai_afire.handlers import cosine_schedule
        >>> teacher = TeacherUpdate(network=None, decay=0.99)
        >>> schedule = ParamSchedulerHandler(
        ...     parameter_setter=teacher.set_decay, value_calculator=cosine_schedule,
        ...     vc_kwargs={"total_steps": 100, "start": 0.99, "end": 1.0},
        ... )
    """

    def __init__(self, network: HasTeacher, decay: float = 0.99) -> None:
        self.network = network
        self.decay = decay

    def set_decay(self, decay: float) -> None:
        """Set λ; for a scheduler."""
        self.decay = decay

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(IterationEvents.MODEL_COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """Update the teacher if this iteration stepped."""
        if is_optimizer_step(engine):
            self.network.update_teacher(self.decay)


def is_optimizer_step(engine: Any) -> bool:
    """
    Whether MONAI's ``SupervisedTrainer`` steps its optimizer in this iteration (it may accumulate gradients).

    Args:
        engine: the trainer, during an iteration.

    Returns:
        True when it steps.

    Example:
        >>> from types import SimpleNamespace
        >>> state = SimpleNamespace(iteration=3, epoch_length=10)
        >>> is_optimizer_step(SimpleNamespace(accumulation_steps=2, state=state))
        False
    """
    accumulation_steps = getattr(engine, "accumulation_steps", 1)
    epoch_length = engine.state.epoch_length
    iteration = (engine.state.iteration - 1) % epoch_length if epoch_length else engine.state.iteration - 1
    return bool((iteration + 1) % accumulation_steps == 0 or iteration + 1 == epoch_length)
