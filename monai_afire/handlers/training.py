# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What every training has: seeds, a guard, validation, curves, a progress bar, and files from which it resumes."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping, ProgressBar
from monai.engines import Evaluator
from monai.engines.utils import default_metric_cmp_fn
from monai.handlers import MLFlowHandler, StatsHandler
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from monai_afire.data.datalist.drawn_images import image_kind
from monai_afire.data.datalist.image_list import image_digest
from monai_afire.handlers.gradients import AccumulationMean
from monai_afire.handlers.nonfinite_loss import NonFiniteLoss
from monai_afire.handlers.preview import Preview
from monai_afire.handlers.random_state import EpochSeed
from monai_afire.handlers.scalars import step_scalars
from monai_afire.inferers.autocast import AutocastInferer
from monai_afire.networks.weights.checkpoint_files import read_own, write_pickle
from monai_afire.networks.weights.description import describe, with_description
from monai_afire.utils.distributed import barrier, by_main_rank, global_rank
from monai_afire.utils.few_images import distinct_images, warn_if_few
from monai_afire.utils.files import remove_leftovers
from monai_afire.utils.text import counted

__all__ = ["Training"]

logger = logging.getLogger(__name__)

_FEW_STEPS = 600  # of the optimizer; no method of this package has learned much from fewer


@dataclass(eq=False)
class Training:
    """
    Attach to MONAI's ``SupervisedTrainer``, as the last of its handlers.

    Each epoch has random numbers of its own (:class:`EpochSeed`), a loss that is not finite ends the run
    (:class:`NonFiniteLoss`), and accumulated gradients are means (:class:`AccumulationMean`). The first, every
    ``val_interval``-th and the last epoch are validated. ``output_dir`` gets the curves of TensorBoard, the preview,
    and a folder ``models`` with

    * ``checkpoint.pt``: all that is needed to resume, written after each epoch, complete or not at all. A resumed run
      ends with the same weights as one that was not stopped; other training images or classes are refused;
    * ``model.pt``: the network of the last epoch or, with ``keep_best``, of the best validation, with a description.

    Calling ``run()`` of a trainer again, with more epochs, goes on with the same run.

    Args:
        network: the network, unwrapped (neither compiled nor ``DistributedDataParallel``).
        validator: evaluates the network; None for no validation.
        output_dir: folder of the run.
        handlers: the other handlers of the trainer; values that their schedules change are recorded, and MONAI's
            ``MLFlowHandler`` among them logs what is recorded.
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
        description: what the files say about the network, arguments of ``describe``.
        weights: that the network starts from, as the user named them, for the log.
        next_step: what to do with the model, printed at the end; "{run}" stands for the name of the run.

    Raises:
        FileExistsError: when the training starts and ``output_dir`` has the weights of another run.
        FileNotFoundError: when there is nothing to resume.
        ValueError: when the checkpoint is of other images or classes.

    Example:
        >>> import tempfile
        >>> from monai.engines import SupervisedTrainer
        >>> network = nn.Linear(2, 1)
        >>> training = Training(network, None, tempfile.mkdtemp())
        >>> trainer = SupervisedTrainer(
        ...     device="cpu", max_epochs=2, network=network, loss_function=nn.MSELoss(), decollate=False,
        ...     train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}],
        ...     optimizer=torch.optim.SGD(network.parameters(), lr=0.1), train_handlers=[training],
        ... )
        >>> trainer.run()  # doctest: +ELLIPSIS
        model:   ...model.pt
        curves:  tensorboard --logdir ...
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
    weights: str | None = None
    next_step: str = ""

    def __post_init__(self) -> None:
        self.epoch = 0  # the last complete one
        self.scores: list[float] = []  # of the validations, of which more is better
        self.images: str | None = None  # digest of the training images
        self.early_stopping: EarlyStopping | None = None
        self.scaler: torch.amp.GradScaler | None = None
        self.writer: SummaryWriter | None = None  # of the curves, on the main rank alone

    @property
    def models(self) -> Path:
        """Folder of the weights."""
        return Path(self.output_dir, "models")

    def attach(self, engine: Any) -> None:
        """Register with a trainer."""
        self.engine: Any = engine
        if self.patience is not None:
            self.early_stopping = EarlyStopping(self.patience, self.score, engine)
        EpochSeed(self.seed, generators=self.generators).attach(engine)
        NonFiniteLoss().attach(engine)
        AccumulationMean().attach(engine)
        engine.add_event_handler(Events.STARTED, self.start)
        self.attach_records(engine)
        if self.validator is not None:
            self.attach_validation(engine, self.validator)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.save)
        engine.add_event_handler(Events.COMPLETED, self.finish)

    def attach_records(self, engine: Engine) -> None:
        """A progress bar for each epoch, the curves, and what MONAI's tracking logs."""
        recorded = Events.ITERATION_COMPLETED(event_filter=self.is_recorded)
        engine.add_event_handler(recorded, self.write_step)
        if global_rank() == 0 and sys.stderr.isatty():
            ProgressBar(persist=True).attach(
                engine, output_transform=self.scalars, event_name=recorded
            )
        elif global_rank() == 0:
            engine.add_event_handler(Events.EPOCH_COMPLETED, self.log_epoch)
        for handler in self.handlers:
            if isinstance(handler, MLFlowHandler):
                # MONAI's own takes the loss of decollated items
                handler.output_transform = self.tracked

    def log_epoch(self, engine: Engine) -> None:
        """A line for a log file, in place of the progress bar."""
        values = self.scalars(engine.state.output)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        logger.info(f"epoch {engine.state.epoch} of {engine.state.max_epochs}: {shown}")

    def attach_validation(self, engine: Engine, validator: Evaluator) -> None:
        """Validate now and then, always with the same random numbers, and record what is found."""
        engine.add_event_handler(
            Events.EPOCH_COMPLETED(event_filter=self.is_validated),
            lambda: validator.run(engine.state.epoch),
        )
        EpochSeed(constant=True).attach(validator)
        StatsHandler(name="validation", iteration_log=False).attach(validator)
        if self.preview is not None:
            self.preview.path = str(Path(self.output_dir, self.preview.path))
            self.preview.attach(validator)
        validator.add_event_handler(Events.COMPLETED, self.record_validation)

    def start(self, engine: Engine) -> None:
        """Resume, or make sure that no other run is overwritten; a later ``run()`` of the trainer just goes on."""
        self.scale_float16(engine)
        if engine.state.iteration > 0:
            return
        self.identify(engine.state.dataloader)
        if self.resume:
            self.restore(engine)
        elif any(self.models.glob("*.pt")):
            raise FileExistsError(
                f"{self.models} has the weights of another run: resume that run, or choose another folder"
            )
        if global_rank() == 0:
            remove_leftovers(self.models)
            self.writer = SummaryWriter(self.output_dir)
            if self.preview is not None:
                self.preview.summary_writer = self.writer
            self.say_what_begins(engine)
            self.warn_of_little(engine)

    def scale_float16(self, engine: Any) -> None:
        """Scale gradients that would vanish, where the inferer computes in float16 (GPUs before Ampere)."""
        inferer, device = engine.inferer, torch.device(engine.state.device)
        if not isinstance(inferer, AutocastInferer) or inferer.precision(device) != torch.float16:
            return
        self.scaler = self.scaler or torch.amp.GradScaler(device.type)
        # the scaler alone: the inferer has its own autocast
        engine.amp, engine.amp_kwargs, engine.scaler = True, {"enabled": False}, self.scaler

    def identify(self, loader: Any) -> None:
        """Which images the network learns from, for resuming, and what it is then, for its users."""
        about = dict(self.description)
        items = getattr(getattr(loader, "dataset", None), "data", None)
        self.images = by_main_rank(image_digest, items, about.get("class_names"))
        if self.images is not None and "trained_on" not in about:
            about["trained_on"] = by_main_rank(image_kind, items)
        self.about = describe(self.network, **about)

    def restore(self, engine: Engine) -> None:
        """Go on from the last complete epoch."""
        path = self.models / "checkpoint.pt"
        if not path.is_file():
            raise FileNotFoundError(
                f"there is no {path} to resume: it is written after the first epoch"
            )
        state = read_own(path)
        if state["training"]["images"] != self.images:
            raise ValueError(
                f"{path} is of other training images or classes: resume with its own, or start anew in another folder"
            )
        for name, each in self.with_state(engine).items():
            if name in state:  # a scaler and early stopping may be new
                each.load_state_dict(state[name])
        engine.state.epoch = self.epoch
        # the length of an epoch may be another one now
        engine.state.iteration = self.epoch * (engine.state.epoch_length or 0)
        stopping = self.early_stopping
        if stopping is not None and stopping.counter >= stopping.patience:
            engine.terminate()

    def say_what_begins(self, engine: Any) -> None:
        """Say what is trained, on which images and where."""
        size = sum(each.numel() for each in self.network.parameters()) / 1e6
        start = f", from the weights {self.weights}" if self.weights else ""
        logger.info(f"network: {type(self.network).__name__}, {size:.1f} million parameters{start}")
        validated = f", validation: {_extent(self.validator)}" if self.validator is not None else ""
        logger.info(f"training: {_extent(engine)}{validated}")
        device = torch.device(engine.state.device)
        inferer = engine.inferer
        half = inferer.precision(device) if isinstance(inferer, AutocastInferer) else None
        logger.info(f"device: {device}, {str(half or torch.float32).removeprefix('torch.')}")

    def warn_of_little(self, engine: Any) -> None:
        """Warn of a run that is too short to learn, and of a choice by few images."""
        length, epochs = engine.state.epoch_length or 0, engine.state.max_epochs or 0
        steps = math.ceil(length / engine.accumulation_steps)  # of an epoch
        if 0 < steps * epochs < _FEW_STEPS:
            enough = math.ceil(_FEW_STEPS / steps)
            logger.warning(
                f"{steps * epochs} steps are too few to learn much: "
                f"{_FEW_STEPS} are {enough} epochs (--epochs {enough})"
            )
        dataset = getattr(getattr(self.validator, "data_loader", None), "dataset", None)
        if self.keep_best and dataset is not None:
            count = distinct_images(dataset) or len(dataset)
            warn_if_few(count, "validation chooses the best epoch and when to stop")

    def is_recorded(self, engine: Engine, iteration: int) -> bool:
        """Whether the values of a step are recorded: at least once in an epoch."""
        return iteration % self.record_interval == 0 or _ends_epoch(engine, iteration)

    def scalars(self, output: Any) -> dict[str, float]:
        """The values of a step, by their names."""
        return step_scalars(output, self.engine.loss_function, self.handlers, self.network)

    def tracked(self, output: Any) -> dict[str, float] | None:
        """The values of a step for MONAI's tracking, which passes over None."""
        is_recorded = self.is_recorded(self.engine, self.engine.state.iteration)
        return self.scalars(output) if is_recorded else None

    def write_step(self, engine: Engine) -> None:
        """Add the values of a step to the curves."""
        if self.writer is not None:
            for name, value in self.scalars(engine.state.output).items():
                self.writer.add_scalar(f"train/{name}", value, engine.state.iteration)

    def is_validated(self, engine: Engine, epoch: int) -> bool:
        """Whether a validation follows an epoch."""
        return epoch in (1, engine.state.max_epochs) or epoch % self.val_interval == 0

    def score(self, validator: Any) -> float:
        """The key metric of a validation, of which more is better."""
        value = float(validator.state.metrics[validator.state.key_metric_name])
        return value * _direction(validator)

    def record_validation(self, validator: Any) -> None:
        """Add metrics to the curves, keep the best network, and stop when there is no improvement."""
        epoch = self.engine.state.epoch
        if epoch == 0:
            return  # an evaluation without training
        if self.writer is not None:
            for name, value in validator.state.metrics.items():
                self.writer.add_scalar(f"validation/{name}", float(value), epoch)
        score = self.score(validator)
        if not math.isfinite(score):
            return
        if self.keep_best and score > max(self.scores, default=-math.inf):
            self.write(self.described_weights(), "model.pt")
        self.scores.append(score)
        if self.early_stopping is not None:
            self.early_stopping(validator)

    def save(self, engine: Engine) -> None:
        """Write the files of an epoch, the checkpoint last: a run that is killed in between repeats the epoch."""
        self.epoch = engine.state.epoch
        barrier()  # never reached by a rank that has failed, whose gradients are in these weights
        weights = self.described_weights()
        if not (self.keep_best and self.scores):
            self.write(weights, "model.pt")
        states = {name: each.state_dict() for name, each in self.with_state(engine).items()}
        self.write({**states, "network": weights}, "checkpoint.pt")

    def described_weights(self) -> Mapping[str, torch.Tensor]:
        """The weights, with what they are of."""
        return with_description(self.network.state_dict(), self.about)

    def write(self, content: Mapping[str, Any], name: str) -> None:
        """Write a file, complete or not at all."""
        if global_rank() == 0:
            write_pickle(content, self.models / name, "resume the run")

    def with_state(self, engine: Any) -> dict[str, Any]:
        """All that has a state."""
        always = {"network": self.network, "optimizer": engine.optimizer, "training": self}
        if_any = {"early_stopping": self.early_stopping, "scaler": engine.scaler}
        used = {name: each for name, each in if_any.items() if each is not None}
        return {**always, **used, **self.objects}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint knows of the training itself."""
        return {"epoch": self.epoch, "scores": list(self.scores), "images": self.images}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self.epoch, self.scores = state["epoch"], list(state["scores"])

    def finish(self, engine: Engine) -> None:
        """Print where the results are, and whether anything was learned."""
        if self.writer is None:
            return
        self.writer.close()
        print(f"model:   {self.models / 'model.pt'}")
        if self.preview is not None and Path(self.preview.path).is_file():
            print(f"picture: {self.preview.path}")
        print(f"curves:  tensorboard --logdir {self.output_dir}")
        if warning := self.what_was_not_learned():
            print(f"warning: {warning}")
        if self.next_step:
            print(f"next:    {self.next_step.format(run=Path(self.output_dir).name)}")

    def what_was_not_learned(self) -> str:
        """A sentence where the model is not better than without learning, or than after the first validation."""
        if self.validator is None or not self.scores:
            return ""
        state, direction = self.validator.state, _direction(self.validator)
        reached = max(self.scores) if self.keep_best else self.scores[-1]
        no_skill = state.metrics.get("chance", self.no_skill)
        found = f"{state.key_metric_name} is {direction * reached:.3g}"
        if no_skill is not None and reached <= direction * float(no_skill):
            return f"nothing was learned: {found}, and {float(no_skill):.3g} without learning"
        if len(self.scores) > 1 and reached <= self.scores[0]:
            return f"little was learned: {found}, not better than in the first validation"
        return ""


def _ends_epoch(engine: Engine, iteration: int) -> bool:
    """Whether a step is the last one of its epoch."""
    return iteration == engine.state.epoch * (engine.state.epoch_length or 0)


def _extent(engine: Any) -> str:
    """How many images an engine goes through, and of how many patients where the list names them."""
    dataset = getattr(getattr(engine, "data_loader", None), "dataset", None)
    items = getattr(dataset, "data", None) or ()
    patients = {item.get("patient_id") for item in items if isinstance(item, Mapping)} - {None}
    images = counted(len(dataset) if dataset is not None else 0, "image")
    return f"{images} of {counted(len(patients), 'patient')}" if patients else images


def _direction(validator: Any) -> int:
    """1 where more of the key metric is better, or else -1."""
    is_better = getattr(validator, "metric_cmp_fn", default_metric_cmp_fn)
    return 1 if is_better(1.0, 0.0) else -1
