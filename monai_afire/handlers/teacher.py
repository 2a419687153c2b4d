# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that updates an EMA teacher after each optimizer step."""

from __future__ import annotations

from typing import Any, Protocol

from ignite.engine import Engine
from monai.engines.utils import IterationEvents

from monai_afire.utils.distributed import unwrapped


class HasTeacher(Protocol):
    """A network with a teacher that moves towards its student."""

    def update_teacher(self) -> None:
        """Move the teacher."""


class TeacherUpdate:
    """
    Move the network's teacher towards its student after every optimizer step.

    Calls ``network.update_teacher()``. With gradient accumulation only iterations that step count.

    Args:
        network: a method's network with ``update_teacher``, unwrapped (not the ``DistributedDataParallel`` around it);
            None for that of the trainer.

    Example:
        >>> from monai_afire.networks import AFiRe, ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> handler = TeacherUpdate(AFiRe(encoder, num_clusters=8, decoder_layers=1))
    """

    def __init__(self, network: HasTeacher | None = None) -> None:
        self.network = network

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(IterationEvents.MODEL_COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """Update the teacher if this iteration stepped."""
        if is_optimizer_step(engine):
            network: Any = unwrapped(engine.network) if self.network is None else self.network
            network.update_teacher()


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
    step = engine.state.iteration
    if epoch_length:
        step = (step - 1) % epoch_length + 1
    return step % accumulation_steps == 0 or step == epoch_length
