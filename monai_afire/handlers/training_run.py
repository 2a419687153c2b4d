# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What every training run has: seeds, a guard, validation, curves, a progress bar and a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from ignite.engine import Engine
from monai.engines import Evaluator
from monai.handlers import StatsHandler, TensorBoardStatsHandler
from torch import nn

from monai_afire.handlers.checkpoint import ResumableCheckpoint
from monai_afire.handlers.class_names_file import ClassNamesFile
from monai_afire.handlers.nonfinite_loss import NonFiniteLoss
from monai_afire.handlers.preview import Preview
from monai_afire.handlers.progress import TrainingProgressBar
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.handlers.summary import MainRankSummaryWriter, ScalarCurves
from monai_afire.handlers.validation import EpochValidation, ResumableEarlyStop

__all__ = ["TrainingRun"]


@dataclass(eq=False)
class TrainingRun:
    """
    The handlers that every training run has, in the order that they need.

    A trainer attaches those of :meth:`first_handlers`, its own, and those of :meth:`last_handlers`:

    * :class:`EpochSeed` and :class:`NonFiniteLoss` come first;
    * :class:`EpochValidation`, TensorBoard's curves (``train/``, ``validation/``), :class:`TrainingProgressBar` and
      :class:`ResumableCheckpoint` come last: what is saved has been validated. :class:`ClassNamesFile` follows where
      the description has names of classes.

    The validator draws the same random numbers in every epoch, prints its metrics, adds them to the curves, and draws
    the preview.

    Args:
        network: the network, unwrapped.
        validator: evaluates the network.
        output_dir: folder of the curves, the preview, and what the guard writes.
        ckpt_dir: folder of ``checkpoint.pt`` and ``model.pt``.
        summary_writer: of TensorBoard; None for a :class:`MainRankSummaryWriter` into ``output_dir``.
        seed: of the run, a whole number >= 0.
        resume: continue from ``checkpoint.pt``.
        val_interval: epochs between two validations, at least 1.
        save_interval: epochs between two checkpoints.
        record_interval: iterations between two records of the curves; each one waits for the device.
        first_validation: whether the first epoch is validated, too.
        keep_best: whether ``model.pt`` is the network of the best validation, rather than the last one.
        early_stopping: ends the run when validation no longer improves; None for never.
        preview: a picture of each validation; a name without a folder is that of a file in ``output_dir``.
        objects: further ones with a state, for the checkpoint.
        generators: of random numbers, besides the global ones.
        description: what the files say about the network, arguments of ``describe``.
        title: of the progress bar.

    Raises:
        ValueError: when ``val_interval`` is below 1.

    Example:
        >>> import tempfile
        >>> network, folder = nn.Linear(1, 1), tempfile.mkdtemp()
        >>> run = TrainingRun(network, None, folder, folder)
        >>> [type(handler).__name__ for handler in run.first_handlers()]
        ['EpochSeed', 'NonFiniteLoss']
    """

    network: nn.Module
    validator: Evaluator | None
    output_dir: str
    ckpt_dir: str
    summary_writer: Any = None
    seed: int = 0
    resume: bool = False
    val_interval: int = 1
    save_interval: int = 1
    record_interval: int = 5
    first_validation: bool = False
    keep_best: bool = False
    early_stopping: ResumableEarlyStop | None = None
    preview: Preview | None = None
    objects: Mapping[str, Any] = field(default_factory=dict)
    generators: Sequence[torch.Generator] = ()
    description: Mapping[str, Any] = field(default_factory=dict)
    title: str = "training"

    def __post_init__(self) -> None:
        if self.summary_writer is None:
            self.summary_writer = MainRankSummaryWriter(self.output_dir)
        if self.preview is not None:
            self.preview.path = os.path.join(self.output_dir, self.preview.path)
            self.preview.summary_writer = self.summary_writer

    def first_handlers(self) -> list[Any]:
        """Handlers that act before the trainer's own."""
        return [EpochSeed(self.seed, generators=self.generators), NonFiniteLoss(self.output_dir)]

    def last_handlers(
        self, scalars: Callable[[Any], Mapping[str, Any]], optimizer: torch.optim.Optimizer
    ) -> list[Any]:
        """
        Handlers that act after the trainer's own.

        Args:
            scalars: called with the output of the trainer for the values of the curves.
            optimizer: of the trainer; its state is part of the checkpoint.

        Returns:
            The handlers, in their order.
        """
        handlers: list[Any] = []
        if self.validator is not None:
            self._describe_validation(self.validator)
            handlers.append(
                EpochValidation(
                    self.validator, self.val_interval, self.early_stopping, self.first_validation
                )
            )
        handlers.append(
            TensorBoardStatsHandler(
                summary_writer=self.summary_writer,
                iteration_log=self.record_interval,
                iteration_event_writer=ScalarCurves("train", scalars).write_step,
                epoch_log=False,
            )
        )
        chosen_by = self.validator if self.keep_best else None
        handlers.append(TrainingProgressBar(None, self.record_interval, self.title, chosen_by))
        handlers.append(self._checkpoint(chosen_by, optimizer))
        if self.description.get("class_names") is not None:
            # after the checkpoint, which refuses to be resumed with other classes
            handlers.append(ClassNamesFile(self.description["class_names"], self.ckpt_dir))
        return handlers

    def _describe_validation(self, validator: Engine) -> None:
        """Let a validation draw the same numbers each time, print its metrics, and add them to the curves."""
        EpochSeed(constant=True).attach(validator)
        StatsHandler(name="validation", iteration_log=False).attach(validator)
        TensorBoardStatsHandler(
            summary_writer=self.summary_writer,
            iteration_log=False,
            epoch_event_writer=ScalarCurves("validation").write_metrics,
        ).attach(validator)
        if self.preview is not None:
            self.preview.attach(validator)

    def _checkpoint(
        self, chosen_by: Evaluator | None, optimizer: torch.optim.Optimizer
    ) -> ResumableCheckpoint:
        """The checkpoint of all that has a state."""
        objects = {"optimizer": optimizer, **self.objects}
        if self.early_stopping is not None:
            objects["early_stopping"] = self.early_stopping
        return ResumableCheckpoint(
            self.ckpt_dir,
            self.network,
            objects,
            interval=self.save_interval,
            resume=self.resume,
            validator=chosen_by,
            generators=self.generators,
            description=self.description,
        )
