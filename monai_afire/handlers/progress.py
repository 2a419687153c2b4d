# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Progress bar of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from ignite.engine import Engine, Events
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from monai_afire.handlers.scalars import TrainingScalars
from monai_afire.utils.distributed import global_rank

__all__ = ["TrainingProgressBar"]


@dataclass(eq=False)
class TrainingProgressBar:
    """
    One progress bar over the whole run, with the remaining time and the current values.

    ignite's ``ProgressBar`` starts anew each epoch and reads the values in every iteration, for which a GPU would have
    to stop; this one reads them every ``refresh`` iterations. Log messages appear above the bar, not through it. Only
    the main rank shows it.

    Args:
        values: called with the engine's output for the values to show, a dictionary of name -> number or scalar
            tensor; None shows the terms of the trainer's loss function, if it has one.
        refresh: iterations between two readings, as between two records of the curves.
        description: text before the bar.
        validator: an evaluator whose last metrics are shown too.

    Example:
        >>> engine = Engine(lambda engine, batch: None)
        >>> TrainingProgressBar(lambda output: {"loss": 1.0}).attach(engine)
    """

    values: Callable[[Any], Mapping[str, float | torch.Tensor]] | None = None
    refresh: int = 5
    description: str = "training"
    validator: Engine | None = None
    bar: tqdm | None = field(default=None, init=False)
    resources: ExitStack = field(default_factory=ExitStack, init=False)

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.EPOCH_STARTED, self.epoch_started)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.iteration_completed)
        engine.add_event_handler(Events.COMPLETED, self.close)
        engine.add_event_handler(Events.TERMINATE, self.close)

    def epoch_started(self, engine: Engine) -> None:
        """Open the bar in the first epoch of this run, which may be a resumed one."""
        if global_rank():
            return
        if self.bar is None:
            epoch_length = engine.state.epoch_length
            total = (
                epoch_length * engine.state.max_epochs
                if epoch_length and engine.state.max_epochs
                else None
            )
            bar = tqdm(total=total, initial=engine.state.iteration, dynamic_ncols=True, unit="step")
            self.bar = self.resources.enter_context(bar)
            self.resources.enter_context(logging_redirect_tqdm())
        self.bar.set_description(
            f"{self.description}, epoch {engine.state.epoch}/{engine.state.max_epochs}"
        )

    def iteration_completed(self, engine: Engine) -> None:
        """Advance; read the values now and then."""
        if self.bar is None:
            return
        if self.values is None and hasattr(engine, "loss_function"):
            self.values = TrainingScalars(engine.loss_function)
        if self.values is not None and engine.state.iteration % self.refresh == 0:
            metrics = {} if self.validator is None else self.validator.state.metrics
            values = {**self.values(engine.state.output), **metrics}
            shown = {name: f"{float(value):.3g}" for name, value in values.items()}
            self.bar.set_postfix(shown, refresh=False)
        self.bar.update()

    def close(self, engine: Engine) -> None:
        """Close the bar."""
        self.resources.close()
        self.bar = None
