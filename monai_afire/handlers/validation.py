# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Validation every few epochs, and early stopping by it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sized
from typing import Any

from ignite.engine import Engine, Events
from monai.engines import Evaluator
from monai.engines.utils import default_metric_cmp_fn
from monai.handlers import EarlyStopHandler, ValidationHandler

from monai_afire.utils.distributed import global_rank
from monai_afire.utils.few_images import FOR_VALIDATION, distinct_images, warn_if_few

logger = logging.getLogger(__name__)


class ResumableEarlyStop(EarlyStopHandler):
    """
    MONAI's ``EarlyStopHandler`` with a state dict, for :class:`~monai_afire.handlers.ResumableCheckpoint`.

    Without one a run that is interrupted and resumed forgets its best score and starts to count anew: it stops later
    than one that was not interrupted. The arguments are those of ``EarlyStopHandler``.

    Example:
        >>> from ignite.engine import Engine
        >>> trainer, scores = Engine(lambda engine, batch: None), iter([0.7, 0.5])
        >>> handler = ResumableEarlyStop(patience=2, score_function=lambda engine: next(scores), trainer=trainer)
        >>> handler(trainer)
        >>> handler(trainer)
        >>> handler.state_dict()["best_score"], handler.state_dict()["counter"]
        (0.7, 1)
    """

    def __init__(
        self, patience: int, score_function: Callable[[Any], float] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(patience, score_function or key_metric_score, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Best score and number of validations since then; empty before ``set_trainer``."""
        if self._handler is None:
            return {}
        state = dict(self._handler.state_dict())
        if state["best_score"] is not None:
            # NumPy's numbers are not read with weights_only=True
            state["best_score"] = float(state["best_score"])
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore a state.

        Args:
            state_dict: of :meth:`state_dict`.

        Raises:
            RuntimeError: before ``set_trainer``.
        """
        if self._handler is None:
            raise RuntimeError(
                "set the trainer before the state is loaded: call set_trainer() first"
            )
        if state_dict:
            self._handler.load_state_dict(state_dict)
        if self._handler.counter >= self._handler.patience:
            logger.warning("this run is complete already: early stopping has ended it")
            self._handler.trainer.terminate()


def key_metric_score(validator: Engine) -> float:
    """The key metric of a validation as a score, of which more is better."""
    state: Any = validator.state
    value = float(state.metrics[state.key_metric_name])
    is_better = getattr(validator, "metric_cmp_fn", default_metric_cmp_fn)
    return value if is_better(1.0, 0.0) else -value


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
            raise ValueError(
                f"the interval between validations must be at least 1 epoch, got {interval}"
            )
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
        return (
            epoch % self.interval == 0
            or epoch == engine.state.max_epochs
            or (self.first and epoch == 1)
        )

    def warn_if_few(self, engine: Engine) -> None:
        """Warn that what validation chooses is chance where it has few images."""
        dataset = getattr(getattr(self.validator, "data_loader", None), "dataset", None)
        if isinstance(dataset, Sized) and global_rank() == 0:
            count = distinct_images(dataset)
            warn_if_few(
                len(dataset) if count is None else count,
                "validation chooses the best epoch, the thresholds and when to stop",
                which=FOR_VALIDATION,
            )

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.EPOCH_COMPLETED(event_filter=self.is_due), self)
        engine.add_event_handler(Events.STARTED, self.warn_if_few)
        engine.add_event_handler(Events.STARTED, self.count_validations)
        if self.early_stopping is not None:
            self.early_stopping.set_trainer(engine)

    def count_validations(self, engine: Engine) -> None:
        """Count validations for early stopping from now on; an evaluation without training does not count."""
        stopping, validator = self.early_stopping, self.validator
        if stopping is not None and engine.state.iteration == 0:
            stopping.set_trainer(engine)  # forget a former run
        if (
            stopping is not None
            and validator is not None
            and not validator.has_event_handler(stopping)
        ):
            stopping.attach(validator)
