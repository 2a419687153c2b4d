# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""MONAI's trainer with what every run has, made to work with experiment tracking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from monai.engines import SupervisedTrainer
from monai.engines.utils import IterationEvents
from monai.handlers import MLFlowHandler

from monai_afire.handlers.scalars import scheduled_scalars
from monai_afire.handlers.training_run import TrainingRun
from monai_afire.inferers.autocast import AutocastInferer


class TrackedTrainer(SupervisedTrainer):
    """
    MONAI's ``SupervisedTrainer`` with the handlers of a :class:`monai_afire.handlers.TrainingRun` around its own.

    It has metrics for the option ``--tracking mlflow`` of ``monai.bundle``. That option appends a ``MLFlowHandler`` to
    the trainer's handlers, which reads the loss by ``from_engine(["loss"], first=True)``. For decollated items this is
    a number. For a trainer that does not decollate it is a tuple, and MLflow fails. This class replaces such a tuple by
    metrics to log. Other outputs of the handler's ``output_transform`` stay.

    Unlike MONAI's, it copies batches to the device without waiting, frees gradients after each step, and does not
    decollate: nothing here looks at single images.

    With ``accumulation_steps``, a step has the mean gradient of its batches. So has the last one of an epoch for which
    fewer are left; MONAI alone divides it by ``accumulation_steps``, too.

    Where the inferer computes in float16, gradients are scaled. The scale is no part of a checkpoint: a resumed run
    finds it again in some steps, which it leaves out.

    Args:
        run: what every run has; None for none of it.
        scalars: called with the engine's output for the metrics to log, name -> number or scalar tensor. By default the
            loss or its terms, what the schedules among the handlers change, and what the method has to watch
            (``scheduled_scalars``).
        tracking_interval: iterations between two records; each one waits for the device and the data base.
        total_epochs: of all calls together, for schedules; None for ``max_epochs``. Federated learning needs it, where
            each round is a call.
        train_handlers: as of ``SupervisedTrainer``.
        kwargs: of ``SupervisedTrainer``, by name; ``non_blocking`` and ``optim_set_to_none`` are True by default,
            ``decollate`` is False.

    Raises:
        ValueError: when ``accumulation_steps`` is larger than an epoch, which MONAI would shorten without a warning.

    Example:
        >>> from torch import nn, optim
        >>> network = nn.Linear(2, 1)
        >>> trainer = TrackedTrainer(
        ...     device=torch.device("cpu"), max_epochs=1, network=network, loss_function=nn.MSELoss(),
        ...     train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}],
        ...     optimizer=optim.SGD(network.parameters(), lr=0.1), scalars=lambda output: {"error": output["loss"]},
        ... )
        >>> trainer.run()
    """

    def __init__(
        self,
        *,
        run: TrainingRun | None = None,
        scalars: Callable[[Any], Mapping[str, float | torch.Tensor]] | None = None,
        tracking_interval: int = 5,
        total_epochs: int | None = None,
        train_handlers: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs = {"non_blocking": True, "decollate": False, "optim_set_to_none": True, **kwargs}
        own = list(train_handlers or ())
        self.training_run = run
        self.scalars = scalars or scheduled_scalars(kwargs["loss_function"], own, kwargs["network"])
        self.tracking_interval = tracking_interval
        self.total_epochs = total_epochs
        for handler in own:
            if isinstance(handler, MLFlowHandler):
                handler.output_transform = self._loggable(handler.output_transform)
        if run is not None:
            last = run.last_handlers(self.scalars, kwargs["optimizer"])
            own = [*run.first_handlers(), *own, *last]
        if _in_float16(kwargs.get("inferer"), kwargs["device"]):
            # the scaler alone: the inferer has its own autocast
            kwargs |= {"amp": True, "amp_kwargs": {"enabled": False}}
        super().__init__(train_handlers=own, **kwargs)
        length = self.state.epoch_length
        if length and self.accumulation_steps > length:
            found = f"accumulation_steps is {self.accumulation_steps}, but an epoch has {length} iterations"
            raise ValueError(
                f"{found}, after which the optimizer steps anyway: give at most {length}"
            )
        self.add_event_handler(IterationEvents.LOSS_COMPLETED, self._weigh_last_batches)

    def _weigh_last_batches(self) -> None:
        """Let the batches left for the last step of an epoch be averaged over their own number."""
        length = self.state.epoch_length
        rest = length % self.accumulation_steps if length else 0
        place = (self.state.iteration - 1) % length if length else 0
        if rest and place >= length - rest:
            factor = self.accumulation_steps / rest
            # of the gradient alone: the loss that is shown stays as it is
            self.state.output["loss"].register_hook(lambda gradient: gradient * factor)

    def _loggable(self, output_transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def transform(output: Any) -> Any:
            values = output_transform(output)
            if not isinstance(values, tuple):
                return values
            if self.state.iteration % self.tracking_interval:
                return None  # of which the handler records nothing
            return {name: float(value) for name, value in self.scalars(output).items()}

        return transform


def _in_float16(inferer: Any, device: torch.device | str) -> bool:
    """Whether gradients would vanish without a scaler."""
    return isinstance(inferer, AutocastInferer) and inferer.precision(device) == torch.float16
