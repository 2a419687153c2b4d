# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that updates an EMA teacher after each optimizer step."""

from __future__ import annotations

from typing import Any

from ignite.engine import Engine
from monai.engines.utils import IterationEvents

from monai_afire.utils.process_group import unwrapped


class TeacherUpdate:
    """
    Move the network's teacher towards its student after every optimizer step.

    Calls ``network.update_teacher()``. With gradient accumulation only iterations that step count.

    Args:
        network: a method's network with ``update_teacher``, unwrapped (not the ``DistributedDataParallel`` around it);
            None for that of the trainer.
    """

    def __init__(self, network: Any = None) -> None:
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
    """Whether MONAI's ``SupervisedTrainer`` steps its optimizer in this iteration (it may accumulate gradients)."""
    accumulation_steps = getattr(engine, "accumulation_steps", 1)
    epoch_length = engine.state.epoch_length
    step = engine.state.iteration
    if epoch_length:
        step = (step - 1) % epoch_length + 1
    return step % accumulation_steps == 0 or step == epoch_length
