# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Progress bar of a training."""

from __future__ import annotations

import logging
import sys
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

_WIDTH = 120  # of a line that goes into a file
_LEAST_BAR = 4  # columns that the bar itself keeps


@dataclass(eq=False)
class TrainingProgressBar:
    """
    One progress bar over the whole run, with the remaining time and the current values.

    ignite's ``ProgressBar`` starts anew each epoch and reads the values in every iteration, for which a GPU would have
    to stop; this one reads them every ``refresh`` iterations. Log messages appear above the bar, not through it, and
    the line shows as many values as the terminal has room for. Only the main rank shows it.

    Args:
        values: called with the engine's output for the values to show, a dictionary of name -> number or scalar
            tensor; None shows the terms of the trainer's loss function, if it has one.
        refresh: iterations between two readings, as between two records of the curves.
        description: text before the bar.
        validator: an evaluator whose last metrics are shown too, the key metric first.

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
        last_epoch = Events.EPOCH_COMPLETED(
            event_filter=lambda engine, epoch: epoch == engine.state.max_epochs
        )
        engine.add_event_handler(Events.EPOCH_STARTED, self.epoch_started)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.iteration_completed)
        engine.add_event_handler(last_epoch, self.close)  # before any closing words
        engine.add_event_handler(Events.COMPLETED, self.close)
        engine.add_event_handler(Events.TERMINATE, self.close)

    def epoch_started(self, engine: Engine) -> None:
        """Open the bar in the first epoch of this run, which may be a resumed one."""
        if global_rank():
            return
        epoch = f"{self.description}, epoch {engine.state.epoch}/{engine.state.max_epochs}"
        if self.bar is None:
            self.bar = self._open(engine, epoch)
        self.bar.set_description(epoch)

    def _open(self, engine: Engine, description: str) -> tqdm:
        """The bar, above which the messages of all loggers appear until it is closed."""
        length, epochs = engine.state.epoch_length, engine.state.max_epochs
        bar = tqdm(
            total=length * epochs if length and epochs else None,
            initial=engine.state.iteration,
            desc=description,
            dynamic_ncols=True,
            unit="step",
        )
        self.resources.enter_context(bar)
        self.resources.enter_context(logging_redirect_tqdm(_console_loggers()))
        return bar

    def iteration_completed(self, engine: Engine) -> None:
        """Advance; read the values now and then."""
        if self.bar is None:
            return
        if self.values is None and hasattr(engine, "loss_function"):
            self.values = TrainingScalars(engine.loss_function)
        if self.values is not None and engine.state.iteration % self.refresh == 0:
            values = self.values(engine.state.output)
            self.bar.set_postfix_str(self._fitting(self.bar, values), refresh=False)
        self.bar.update()

    def _fitting(self, bar: tqdm, values: Mapping[str, float | torch.Tensor]) -> str:
        """The first value, the validation's, then the others, as many as the line has room for."""
        state = getattr(self.validator, "state", None)
        metrics = dict(getattr(state, "metrics", {}))
        key = getattr(state, "key_metric_name", None)
        first = [*list(values)[:1], *([key] if key in metrics else [])]
        every = {**values, **metrics}
        shown: list[str] = []
        for name in dict.fromkeys([*first, *every]):
            text = ", ".join([*shown, f"{name}={float(every[name]):.3g}"])
            width = bar.format_dict["ncols"] or _WIDTH
            narrow = {"ncols": width - _LEAST_BAR, "postfix": text}
            if not bar.format_meter(**{**bar.format_dict, **narrow}).endswith(f"{text}]"):
                break  # the line is cut
            shown.append(f"{name}={float(every[name]):.3g}")
        return ", ".join(shown)

    def close(self, engine: Engine) -> None:
        """Close the bar."""
        self.resources.close()
        self.bar = None


def _console_loggers() -> list[logging.Logger]:
    """Those that write to the terminal themselves: the root, and loggers of MONAI's handlers."""
    named = [
        each
        for each in logging.root.manager.loggerDict.values()
        if isinstance(each, logging.Logger)
    ]
    return [each for each in (logging.root, *named) if any(map(_is_console, each.handlers))]


def _is_console(handler: logging.Handler) -> bool:
    streams = (sys.stdout, sys.stderr)
    return isinstance(handler, logging.StreamHandler) and handler.stream in streams
