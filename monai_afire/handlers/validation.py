# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Validation every few epochs, after the last one and, where asked for, after the first."""

from __future__ import annotations

from ignite.engine import Engine, Events
from monai.engines import Evaluator
from monai.handlers import ValidationHandler

from monai_afire.handlers.early_stop import ResumableEarlyStop

__all__ = ["EpochValidation"]


class EpochValidation(ValidationHandler):
    """
    MONAI's ``ValidationHandler``, which also validates the last epoch, however many there are.

    MONAI's handler leaves a run that is shorter than the interval without any validation: without a picture, and with
    a model that was never chosen, or a detector that was never fitted.

    Args:
        validator: the evaluator to run.
        interval: epochs between two validations.
        early_stopping: ends the run when the validation no longer improves; None for never.
        first: whether the first epoch is validated, too, which shows early what a long run is about to learn.

    Raises:
        ValueError: when the interval is below 1.

    Example:
        >>> trainer, handler = Engine(lambda engine, batch: None), EpochValidation(None, interval=3, first=True)
        >>> trainer.state.max_epochs = 8
        >>> [epoch for epoch in range(1, 9) if handler.is_due(trainer, epoch)]
        [1, 3, 6, 8]
    """

    def __init__(
        self,
        validator: Evaluator | None,
        interval: int = 1,
        early_stopping: ResumableEarlyStop | None = None,
        first: bool = False,
    ) -> None:
        if interval < 1:
            raise ValueError(f"the interval between validations must be at least 1 epoch, got {interval}")
        super().__init__(interval, validator)
        self.first = first
        self.early_stopping = early_stopping

    def is_due(self, engine: Engine, epoch: int) -> bool:
        """
        Whether an epoch is followed by a validation.

        Args:
            engine: the trainer.
            epoch: counted from 1.

        Returns:
            True when it is.
        """
        return epoch % self.interval == 0 or epoch == engine.state.max_epochs or (self.first and epoch == 1)

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.EPOCH_COMPLETED(event_filter=self.is_due), self)
        if self.early_stopping is not None and self.validator is not None:
            self.early_stopping.set_trainer(engine)
            self.early_stopping.attach(self.validator)
