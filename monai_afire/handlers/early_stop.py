# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Early stopping whose state is part of the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ignite.engine import Engine
from monai.engines.utils import default_metric_cmp_fn
from monai.handlers import EarlyStopHandler

__all__ = ["ResumableEarlyStop", "key_metric_score"]


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

    def __init__(self, patience: int, score_function: Callable[[Any], float] | None = None, **kwargs: Any) -> None:
        super().__init__(patience, score_function or key_metric_score, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Best score and number of validations since then; empty before ``set_trainer``."""
        if self._handler is None:
            return {}
        state = dict(self._handler.state_dict())
        if state["best_score"] is not None:
            state["best_score"] = float(state["best_score"])  # NumPy's numbers are not read with weights_only=True
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Go on counting from a state.

        Args:
            state_dict: of :meth:`state_dict`.

        Raises:
            RuntimeError: before ``set_trainer``.
        """
        if self._handler is None:
            raise RuntimeError("set the trainer before the state is loaded: call set_trainer() first")
        if state_dict:
            self._handler.load_state_dict(state_dict)


def key_metric_score(validator: Engine) -> float:
    """
    The key metric of a validation as a score, of which more is better.

    Args:
        validator: whose ``metric_cmp_fn`` says whether the larger value is the better one.

    Returns:
        The metric, negated where less is better.

    Example:
        >>> validator = Engine(lambda engine, batch: None)
        >>> validator.state.key_metric_name, validator.state.metrics = "error", {"error": 0.25}
        >>> validator.metric_cmp_fn = lambda current, best: current < best
        >>> key_metric_score(validator)
        -0.25
    """
    state: Any = validator.state
    value = float(state.metrics[state.key_metric_name])
    is_better = getattr(validator, "metric_cmp_fn", default_metric_cmp_fn)
    return value if is_better(1.0, 0.0) else -value
