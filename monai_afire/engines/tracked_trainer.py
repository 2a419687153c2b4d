# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A trainer whose losses experiment tracking can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from ignite.engine import Engine
from monai.engines import SupervisedTrainer
from monai.handlers import MLFlowHandler

__all__ = ["TrackedTrainer"]


class TrackedTrainer(SupervisedTrainer):
    """
    MONAI's ``SupervisedTrainer``, with figures for the option ``--tracking mlflow`` of ``monai.bundle``.

    That option appends a ``MLFlowHandler`` to the trainer's handlers, which reads the loss from a list of decollated
    items: from the dictionary of a trainer that does not decollate it takes a tuple, at which MLflow fails. Handlers
    cannot reach it, since it comes last. Here it is given a function for the figures and an interval; a handler with an
    ``output_transform`` of its own is left as it is.

    Args:
        scalars: called with the engine's output for the figures to log, name -> number or scalar tensor; None logs the
            loss.
        tracking_interval: iterations between two records; each one waits for the device and the data base.
        train_handlers: as of ``SupervisedTrainer``.
        kwargs: of ``SupervisedTrainer``, by name.

    Example:
        >>> from torch import nn, optim
        >>> network = nn.Linear(2, 1)
        >>> trainer = TrackedTrainer(
        ...     device=torch.device("cpu"), max_epochs=1, network=network, loss_function=nn.MSELoss(), decollate=False,
        ...     train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}],
        ...     optimizer=optim.SGD(network.parameters(), lr=0.1), scalars=lambda output: {"error": output["loss"]},
        ... )
        >>> trainer.run()
    """

    def __init__(
        self,
        *,
        scalars: Callable[[Any], Mapping[str, float | torch.Tensor]] | None = None,
        tracking_interval: int = 1,
        train_handlers: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.scalars = scalars
        self.tracking_interval = tracking_interval
        for handler in train_handlers or ():
            if isinstance(handler, MLFlowHandler) and _is_default(handler.output_transform):
                handler.output_transform = self.tracked_scalars
                handler.iteration_log = self.is_tracked
        super().__init__(train_handlers=train_handlers, **kwargs)

    def tracked_scalars(self, output: Any) -> dict[str, float]:
        """The figures of one iteration as numbers."""
        scalars = {"loss": output["loss"]} if self.scalars is None else self.scalars(output)
        return {name: float(value) for name, value in scalars.items()}

    def is_tracked(self, engine: Engine, iteration: int) -> bool:
        """Whether this iteration is recorded."""
        return iteration % self.tracking_interval == 0


def _is_default(output_transform: Callable[[Any], Any]) -> bool:
    return getattr(output_transform, "__qualname__", "").startswith("from_engine.")
