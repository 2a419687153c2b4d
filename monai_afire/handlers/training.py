# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What every training has: seeds, a guard, validation, curves, a progress bar, and files from which it resumes."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, ProgressBar
from monai.engines import Evaluator
from monai.engines.utils import IterationEvents, default_metric_cmp_fn
from monai.handlers import MLFlowHandler, StatsHandler
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from monai_afire.data.datalist.drawn_images import image_kind
from monai_afire.data.datalist.image_list import image_digest
from monai_afire.handlers.nonfinite_loss import NonFiniteLoss
from monai_afire.handlers.preview import Preview
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.handlers.scalars import TrainingScalars, scheduled_scalars
from monai_afire.inferers.autocast import AutocastInferer
from monai_afire.networks.weights.checkpoint_files import read_own
from monai_afire.networks.weights.description import describe, with_description
from monai_afire.utils.distributed import by_main_rank, global_rank
from monai_afire.utils.few_images import warn_if_few

__all__ = ["Training"]

logger = logging.getLogger(__name__)

_FEW_STEPS = 600  # of the optimizer; no method of this package has learned much from fewer


@dataclass(eq=False)
class Training:
    """
    Attach to MONAI's ``SupervisedTrainer``, as the last of its handlers.

    Each epoch has random numbers of its own, see :class:`EpochSeed`. The first, every ``val_interval``-th and the last
    epoch are validated. ``output_dir`` gets the curves of TensorBoard, the preview, and a folder ``models`` with

    * ``checkpoint.pt``: all that is needed to resume, written after each epoch, complete or not at all. A resumed run
      ends with the same weights as one that was not stopped; other training images or classes are refused;
    * ``model.pt``: the network of the last epoch or, with ``keep_best``, of the best validation, with a description.

    Args:
        network: the network, unwrapped (neither compiled nor ``DistributedDataParallel``).
        validator: evaluates the network; None for no validation.
        output_dir: folder of the run.
        handlers: the other handlers of the trainer; values that their schedules change are logged.
        seed: of the run, a whole number >= 0.
        resume: continue from ``checkpoint.pt``.
        val_interval: epochs between two validations.
        record_interval: iterations between two records of the curves; each one waits for the device.
        keep_best: whether ``model.pt`` is the network of the best validation.
        patience: validations without improvement that end the run; None for never.
        no_skill: value of the key metric that is reached without learning; the metric "chance" takes its place.
        preview: a handler that draws a picture of each validation, into a file in ``output_dir``.
        objects: further ones with a state, for the checkpoint.
        generators: of random numbers, besides the global ones.
        description: what ``model.pt`` says about the network, arguments of ``describe``.
        next_step: what to do with the model, printed at the end; "{run}" stands for the name of the run.

    Raises:
        FileExistsError: when the training starts and ``output_dir`` has the weights of another run.
        FileNotFoundError: when there is nothing to resume.
        FloatingPointError: when the loss is not finite; the message names the images.
        ValueError: when ``accumulation_steps`` of the trainer exceeds an epoch, which MONAI would shorten silently, or
            when the checkpoint is of other images or classes.

    Example:
        >>> import tempfile
        >>> network = nn.Linear(2, 1)
        >>> training = Training(network, None, tempfile.mkdtemp())
        >>> trainer = SupervisedTrainer(
        ...     device="cpu", max_epochs=2, network=network, loss_function=nn.MSELoss(), decollate=False,
        ...     train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}],
        ...     optimizer=torch.optim.SGD(network.parameters(), lr=0.1), train_handlers=[training],
        ... )
        >>> trainer.run()  # doctest: +SKIP
    """

    network: nn.Module
    validator: Evaluator | None
    output_dir: str
    handlers: Sequence[Any] = ()
    seed: int = 0
    resume: bool = False
    val_interval: int = 1
    record_interval: int = 5
    keep_best: bool = False
    patience: int | None = None
    no_skill: float | None = None
    preview: Preview | None = None
    objects: Mapping[str, Any] = field(default_factory=dict)
    generators: Sequence[torch.Generator] = ()
    description: Mapping[str, Any] = field(default_factory=dict)
    next_step: str = ""

    def __post_init__(self) -> None:
        self.scores: list[float] = []  # of the validations, of which more is better
        self.epoch = 0
        self.images: str | None = None  # digest of the training images
        self.is_started = False
        self.early_stopping: EarlyStopping | None = None

    def attach(self, engine: Any) -> None:
        """Register with a trainer."""
        self.engine: Any = engine
        if self.patience is not None:
            self.early_stopping = EarlyStopping(self.patience, self.score, engine)
        EpochSeed(self.seed, generators=self.generators).attach(engine)
        NonFiniteLoss().attach(engine)
        engine.add_event_handler(IterationEvents.LOSS_COMPLETED, weigh_last_batches, engine)
        engine.add_event_handler(Events.STARTED, self.start)
        self.attach_records(engine)
        if self.validator is not None:
            self.attach_validation(engine, self.validator)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.save)
        engine.add_event_handler(Events.COMPLETED, self.finish)

    def attach_records(self, engine: Engine) -> None:
        """A progress bar for each epoch, the curves, and what MONAI's tracking logs."""
        every = Events.ITERATION_COMPLETED(every=self.record_interval)
        if global_rank() == 0:
            # a file gets a line per epoch, not one per step
            waiting = {} if sys.stderr.isatty() else {"mininterval": math.inf}
            bar = ProgressBar(persist=True, **waiting)
            bar.attach(
                engine, output_transform=lambda output: self.scalars(output), event_name=every
            )
            engine.add_event_handler(every, self.write_step)
        for handler in self.handlers:
            if isinstance(handler, MLFlowHandler):
                # MONAI's takes the loss of decollated items
                handler.output_transform = lambda output: {
                    name: float(value) for name, value in self.scalars(output).items()
                }

    def attach_validation(self, engine: Engine, validator: Evaluator) -> None:
        """Validate now and then, always with the same random numbers, and record what is found."""
        engine.add_event_handler(
            Events.EPOCH_COMPLETED(event_filter=self.is_due),
            lambda: validator.run(engine.state.epoch),
        )
        EpochSeed(constant=True).attach(validator)
        StatsHandler(name="validation", iteration_log=False).attach(validator)
        if self.preview is not None:
            self.preview.path = str(Path(self.output_dir, self.preview.path))
            self.preview.attach(validator)
        validator.add_event_handler(Events.COMPLETED, self.record_validation)

    def is_due(self, engine: Engine, epoch: int) -> bool:
        """Whether an epoch is followed by a validation."""
        return epoch in (1, engine.state.max_epochs) or epoch % self.val_interval == 0

    @cached_property
    def scalars(self) -> TrainingScalars:
        """The values of a step to log; a trainer has its loss only after its handlers are attached."""
        return scheduled_scalars(self.engine.loss_function, self.handlers, self.engine.network)

    @cached_property
    def writer(self) -> SummaryWriter:
        """Writer of the curves; the file is made when something is written."""
        return SummaryWriter(self.output_dir)

    @property
    def models(self) -> Path:
        """Folder of the weights."""
        return Path(self.output_dir, "models")

    def start(self, engine: Engine) -> None:
        """Resume, or make sure that no other run is overwritten; a later ``run()`` of the same trainer goes on."""
        if self.is_started:
            return
        check_accumulation(engine)
        scale_float16(engine)
        loader: Any = engine.state.dataloader
        items = getattr(getattr(loader, "dataset", None), "data", None)
        self.images = by_main_rank(image_digest, items, self.description.get("class_names"))
        if self.images is not None and "trained_on" not in self.description:
            self.description = {**self.description, "trained_on": by_main_rank(image_kind, items)}
        self.is_started = True
        if self.resume:
            self.restore(engine)
        elif any(self.models.glob("*.pt")):
            raise FileExistsError(
                f"{self.models} has the weights of another run: resume that run, or choose another folder"
            )
        if global_rank() == 0:
            self.say_what_begins(engine)
            if self.preview is not None:
                self.preview.summary_writer = self.writer

    def restore(self, engine: Engine) -> None:
        """Go on from the last epoch that the checkpoint has."""
        path = self.models / "checkpoint.pt"
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path} to resume")
        state = read_own(path, "start anew in another folder")
        if state["training"]["images"] != self.images:
            raise ValueError(
                f"{path} is of other training images or classes: resume with its own, or start anew in another folder"
            )
        Checkpoint.load_objects(self.to_save(engine), state)
        # by epochs: their length may differ now
        engine.state.epoch = self.epoch
        engine.state.iteration = self.epoch * (engine.state.epoch_length or 0)
        stopping = self.early_stopping
        if stopping is not None and stopping.counter >= stopping.patience:
            engine.terminate()

    def say_what_begins(self, engine: Any) -> None:
        """Print sizes before the first bar, and warn of a run that is too short to learn."""
        length, epochs = engine.state.epoch_length or 0, engine.state.max_epochs or 0
        steps = length * epochs // engine.accumulation_steps
        if 0 < steps < _FEW_STEPS:
            enough = math.ceil(_FEW_STEPS * engine.accumulation_steps / length)
            logger.warning(
                f"{steps} steps are too few to learn much: {_FEW_STEPS} are {enough} epochs (--epochs {enough})"
            )
        dataset = getattr(getattr(self.validator, "data_loader", None), "dataset", None)
        if dataset is not None:
            warn_if_few(len(dataset), "validation chooses the best epoch and when to stop")

    def to_save(self, engine: Any) -> dict[str, Any]:
        """All that has a state."""
        objects = {"network": self.network, "optimizer": engine.optimizer, "training": self}
        others = {"early_stopping": self.early_stopping, "scaler": engine.scaler}
        return {**objects, **self.objects, **{name: each for name, each in others.items() if each}}

    def save(self, engine: Engine) -> None:
        """Write the files of an epoch."""
        self.epoch = engine.state.epoch
        if not (self.keep_best and self.scores):
            self.save_model()
        saver = DiskSaver(self.models, require_empty=False)  # atomic
        Checkpoint(self.to_save(engine), saver, filename_pattern="checkpoint.pt", n_saved=None)(
            engine
        )

    def save_model(self) -> None:
        """Write ``model.pt``."""
        state = with_description(
            self.network.state_dict(), describe(self.network, **self.description)
        )
        if global_rank() == 0:
            DiskSaver(self.models, require_empty=False)(state, "model.pt")

    def write_step(self, engine: Engine) -> None:
        """Add the values of a training step to the curves."""
        for name, value in self.scalars(engine.state.output).items():
            self.writer.add_scalar(f"train/{name}", float(value), engine.state.iteration)

    def score(self, validator: Any) -> float:
        """The key metric of a validation, of which more is better."""
        value = float(validator.state.metrics[validator.state.key_metric_name])
        return value if _more_is_better(validator) else -value

    def record_validation(self, validator: Any) -> None:
        """Add metrics to the curves, keep the best network, and stop when there is no improvement."""
        if not self.is_started:
            return  # an evaluation without training
        epoch, score = self.engine.state.epoch, self.score(validator)
        if global_rank() == 0:
            for name, value in validator.state.metrics.items():
                self.writer.add_scalar(f"validation/{name}", float(value), epoch)
        if math.isfinite(score):
            is_best = score > max(self.scores, default=-math.inf)
            self.scores.append(score)
            if self.keep_best and is_best:
                self.save_model()
        if self.early_stopping is not None:
            self.early_stopping(validator)

    def finish(self, engine: Engine) -> None:
        """Print where the results are, and whether anything was learned."""
        if global_rank():
            return
        self.writer.close()
        lines = {"model": self.models / "model.pt"}
        if self.preview is not None:
            lines["picture"] = Path(self.preview.path)
        for name, path in lines.items():
            if path.is_file():
                print(f"{name + ':':9}{path}")
        print(f"curves:  tensorboard --logdir {self.output_dir}")
        if warning := self.what_was_not_learned():
            print(f"warning: {warning}")
        if self.next_step:
            print(f"next:    {self.next_step.format(run=Path(self.output_dir).name)}")

    def what_was_not_learned(self) -> str:
        """A sentence where the key metric is not better than after the first epoch, or than without learning."""
        validator: Any = self.validator
        if validator is None or not self.scores:
            return ""
        name, best = validator.state.key_metric_name, max(self.scores)
        sign = 1 if _more_is_better(validator) else -1
        no_skill = validator.state.metrics.get("chance", self.no_skill)
        if no_skill is not None and best <= sign * float(no_skill):
            return f"nothing was learned: {name} is {sign * best:.3g}, and {float(no_skill):.3g} without learning"
        if len(self.scores) > 1 and best <= self.scores[0]:
            return f"little was learned: {name} was never better than after the first epoch ({sign * best:.3g})"
        return ""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs besides network and optimizer."""
        return {"epoch": self.epoch, "scores": list(self.scores), "images": self.images}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self.epoch, self.scores = state["epoch"], list(state["scores"])


def check_accumulation(engine: Any) -> None:
    """Refuse more accumulated batches than an epoch has."""
    length = engine.state.epoch_length
    if length and engine.accumulation_steps > length:
        raise ValueError(
            f"accumulation_steps is {engine.accumulation_steps}, but an epoch has {length} iterations, after which "
            f"the optimizer steps anyway: give at most {length}"
        )


def weigh_last_batches(engine: Any) -> None:
    """Let the batches left for the last step of an epoch be averaged over their own number."""
    length = engine.state.epoch_length
    rest = length % engine.accumulation_steps if length else 0
    place = (engine.state.iteration - 1) % length if length else 0
    if rest and place >= length - rest:
        factor = engine.accumulation_steps / rest
        # of the gradient alone: the loss that is shown stays as it is
        engine.state.output["loss"].register_hook(lambda gradient: gradient * factor)


def scale_float16(engine: Any) -> None:
    """Scale gradients that would vanish, where the inferer computes in float16 (GPUs before Ampere)."""
    inferer, device = engine.inferer, torch.device(engine.state.device)
    if isinstance(inferer, AutocastInferer) and inferer.precision(device) == torch.float16:
        # the scaler alone: the inferer has its own autocast
        engine.amp, engine.amp_kwargs = True, {"enabled": False}
        engine.scaler = torch.amp.GradScaler(device.type)


def _more_is_better(validator: Any) -> bool:
    return bool(getattr(validator, "metric_cmp_fn", default_metric_cmp_fn)(1.0, 0.0))
