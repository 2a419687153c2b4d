# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handlers of gradients: their mean over several batches, clipping, and freezing of parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.engines.utils import IterationEvents

from monai_afire.handlers.teacher import is_optimizer_step


class AccumulationMean:
    """
    Let every optimizer step of a trainer with ``accumulation_steps`` have the mean gradient of its batches.

    MONAI divides by ``accumulation_steps`` in the last step of an epoch, too, for which fewer batches may be left.

    Raises:
        ValueError: when ``accumulation_steps`` exceeds an epoch, which MONAI would shorten silently.
    """

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.STARTED, self.check)
        engine.add_event_handler(IterationEvents.LOSS_COMPLETED, self)

    def check(self, engine: Any) -> None:
        """Refuse more accumulated batches than an epoch has."""
        steps, length = engine.accumulation_steps, engine.state.epoch_length
        if length and steps > length:
            raise ValueError(
                f"accumulation_steps is {steps}, but an epoch has {length} batches: give at most {length}"
            )

    def __call__(self, engine: Any) -> None:
        """Weigh a batch of the last step."""
        steps, length = engine.accumulation_steps, engine.state.epoch_length
        rest = length % steps if length else 0
        if rest and (engine.state.iteration - 1) % length >= length - rest:
            # of the gradient alone: the loss that is shown stays as it is
            engine.state.output["loss"].register_hook(lambda gradient: gradient * (steps / rest))


class GradientClipping:
    """
    Clip the gradient's norm before every optimizer step; MONAI's trainers have no option for it.

    Under ``amp`` the gradients are unscaled first. With gradient accumulation only the accumulated gradient is clipped.

    Args:
        parameters: the trained parameters; None for those of the trainer's network.
        max_norm: largest L2 norm of all gradients together.

    Attributes:
        norm: the norm before clipping of the last step, on the device (reading it waits for the device).
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter] | None = None, max_norm: float = 3.0
    ) -> None:
        self.parameters = None if parameters is None else list(parameters)
        self.max_norm = max_norm
        self.norm: torch.Tensor | None = None

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(IterationEvents.BACKWARD_COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """Clip if this iteration steps."""
        if not is_optimizer_step(engine):
            return
        if engine.scaler is not None:
            engine.scaler.unscale_(engine.optimizer)
        parameters = engine.network.parameters() if self.parameters is None else self.parameters
        self.norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)


class FreezeParameters:
    """
    Hold parameters still for the first epochs, at most half of the run, by dropping their gradients.

    DINO's practice for the last layer of a projection head, whose first gradients are noise.

    Args:
        parameters: the parameters to hold.
        epochs: number of epochs, 0 for none.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], epochs: int = 1) -> None:
        self.parameters = list(parameters)
        self.epochs = epochs

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(IterationEvents.BACKWARD_COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """Drop the gradients while the parameters are frozen."""
        # a run of one epoch would never train them
        if engine.state.epoch <= min(self.epochs, engine.state.max_epochs // 2):
            for parameter in self.parameters:
                parameter.grad = None
