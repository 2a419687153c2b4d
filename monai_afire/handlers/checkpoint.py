# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoints that survive a crash, and resumption that continues exactly."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.engines.utils import default_metric_cmp_fn
from torch import nn
from torch.optim import Optimizer

from monai_afire.data.datalist.drawn_images import image_kind
from monai_afire.data.datalist.image_list import image_fingerprint
from monai_afire.handlers.epoch_progress import (
    RemainingBatches,
    adapt_progress,
    batches_done,
    epoch_division,
    has_same_batches,
    processes,
    saved_division,
)
from monai_afire.handlers.random_state import random_state, set_random_state
from monai_afire.handlers.run_folder import BACKUP, RunFolder
from monai_afire.handlers.stop_request import StopRequest
from monai_afire.handlers.teacher import is_optimizer_step
from monai_afire.networks.weights.checkpoint_files import read_own
from monai_afire.networks.weights.description import (
    carried_description,
    describe,
    tensor_digest,
    with_description,
)
from monai_afire.networks.weights.model_file import check_fits, read_description
from monai_afire.utils.distributed import all_gather_object, by_main_rank, global_rank
from monai_afire.utils.text import first_few

__all__ = ["ResumableCheckpoint"]

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class ResumableCheckpoint:
    """
    Save a training run after every few epochs, and resume it.

    This replaces MONAI's ``CheckpointSaver``, which overwrites the file in place, so that a kill while writing destroys
    it, and whose trainer loses the AMP scaler. Here every file is complete or absent (temporary file, flush, rename).
    The scaler is restored. A checkpoint of another architecture is refused, and the error names the first differences.

    ``save_dir`` has ``checkpoint.pt`` with all objects, the progress of the trainer and the scaler, and ``model.pt``
    with the state dict of the network alone. A folder with the files of another run is refused. One run at a time may
    write into the folder, which the machines of a run share. Attach it last, after validation.

    A signal (SIGTERM: the cluster needs the machine; SIGUSR1: SLURM's ``--signal=USR1@120`` ahead of the time limit;
    SIGINT: Ctrl-C) saves after the current iteration and ends the process with code 143, or 130 for SIGINT. The
    resumed run skips the batches that are
    done and restores the random state. With :class:`~monai_afire.handlers.EpochSeed` and the same settings, loader
    processes and ranks, it ends like a run without interruption. In the last iteration of an epoch the validation comes
    first. See :class:`~monai_afire.handlers.stop_request.StopRequest` for several processes.

    ``checkpoint_epoch.pt`` is the checkpoint of the last complete epoch beside one from within an epoch. With another
    number of processes, or epochs of another length, the run continues from there, with a warning.

    Args:
        save_dir: folder of the files; checked to be writable when training starts.
        network: the network, unwrapped (neither compiled nor ``DistributedDataParallel``).
        objects: further objects with state_dict and load_state_dict, e.g. ``{"optimizer": optimizer}``.
        interval: save every so many epochs, and at the end.
        resume: continue from ``checkpoint.pt``; without one, start anew and say so.
        validator: with a validator, ``model.pt`` is the network of the validation with the best key metric, not the
            last one; its ``metric_cmp_fn`` compares two of them, the larger one is better by default.
        generators: generators of random numbers besides the global ones, with ``get_state`` and ``set_state``.
        stop_signals: signals that save and end the run, none for never.
        description: what the files say about the network besides its definition, arguments of
            ``describe``. What the training images are ("trained_on") is found out where it is not given.

    A checkpoint of a complete epoch may be resumed by any number of processes and with epochs of another length
    (another batch size). Progress and schedules follow the new length. A warning names changes of the global batch.

    A checkpoint knows its training images by :func:`monai_afire.data.datalist.image_list.image_fingerprint`, and the
    names of its classes. It is not resumed with others. The images may lie in another folder.

    Raises:
        FileExistsError: when training starts anew and ``save_dir`` has the files of another run.
        OSError: when training starts and ``save_dir`` cannot be written to or has no room for the files; while
            training, when a file cannot be written: the last complete one stays.
        RuntimeError: when another process is writing into the folder; when the checkpoint is of other images or
            classes, does not fit the network, or,
            made in the midst of an epoch, neither the processes nor the loader, with no complete epoch to go back to;
            when the processes of a run see different checkpoints.
        ValueError: when the checkpoint is damaged, by its checksums, or carries code.

    Example:
        >>> import tempfile
        >>> network, folder = nn.Linear(2, 2), tempfile.mkdtemp()
        >>> engine = Engine(lambda engine, batch: None)
        >>> ResumableCheckpoint(folder, network).attach(engine)
        >>> _ = engine.run([0], max_epochs=2)
        >>> sorted(path.name for path in Path(folder).iterdir())
        ['checkpoint.pt', 'model.pt']
    """

    save_dir: str
    network: nn.Module
    objects: Mapping[str, Any] = field(default_factory=dict)
    interval: int = 1
    resume: bool = False
    validator: Engine | None = None
    generators: Sequence[Any] = ()
    stop_signals: Sequence[str] = ("SIGTERM", "SIGUSR1", "SIGINT")
    description: Mapping[str, Any] = field(default_factory=dict)
    best_metric: float | None = field(default=None, init=False)
    images: dict[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.files = RunFolder(self.save_dir)
        self.stop_request = StopRequest(self.stop_signals)
        self.network_description = describe(self.network, **self.description)

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        self.stop_request.attach(engine)
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.save_if_asked)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.save_if_due)

    def start(self, engine: Any) -> None:
        """Load the checkpoint to resume, or make sure that no other run has written here."""
        # only now: an evaluation with the same evaluator, without training, must not write the model
        if self.validator is not None and not self.validator.has_event_handler(self.save_if_best):
            self.validator.add_event_handler(Events.COMPLETED, self.save_if_best)
        if global_rank() == 0:
            self.stop_request.call_at_end(self.files.claim(self.resume).close)
        if engine.state.iteration > 0:
            return  # a later round of federated learning, for which the same trainer runs on
        self.best_metric = None
        self.images = by_main_rank(_images_of, engine.state.dataloader)
        if self.images is not None and "trained_on" not in self.description:
            kind: Any = by_main_rank(image_kind, engine.state.dataloader.dataset.data)
            self.network_description = replace(self.network_description, trained_on=kind)
        is_resumed = self.resume and self.files.checkpoint.is_file()
        if global_rank() == 0:
            if not self.resume:
                self.files.refuse_other_run()
            self.check_disk(is_resumed)
        self.stop_request.shield(getattr(self.validator, "data_loader", None))
        _check_all_see(self.files.checkpoint, is_resumed)
        if is_resumed:
            self.load(engine)
            return
        if self.resume and global_rank() == 0:
            logger.warning(
                f"nothing to resume: {self.files.checkpoint} does not exist; starting from the beginning"
            )

    def check_disk(self, is_resumed: bool) -> None:
        """Make sure that the files of this run can be written, each beside the one that it is going to replace."""
        model = sum(getattr(value, "nbytes", 0) for value in self.network.state_dict().values())
        optimizers = [item for item in self.objects.values() if isinstance(item, Optimizer)]
        parameters = [
            p for item in optimizers for group in item.param_groups for p in group["params"]
        ]
        checkpoint = model + 2 * sum(p.nbytes for p in parameters)  # Adam's two moments
        self.files.check_room(checkpoint, model, is_resumed)

    def save_if_asked(self, engine: Any) -> None:
        """Save and leave if a signal has come and the iteration is complete: no gradient waits for others."""
        if (
            not engine.state.epoch_length
            or not self.stop_request.agreed(engine)
            or not is_optimizer_step(engine)
        ):
            return
        self.save(engine)
        if _is_within_epoch(engine):
            # at an epoch's end validation comes first, if there is time left for it
            self.leave(engine)

    def save_if_due(self, engine: Any) -> None:
        """Save if the interval or the last epoch is reached, or a signal has come."""
        epoch = engine.state.epoch
        is_last = epoch == engine.state.max_epochs
        is_asked = self.stop_request.agreed(engine)
        if epoch % self.interval == 0 or is_last or is_asked:
            self.save(engine)
        if is_asked and not is_last:
            self.leave(engine)

    def leave(self, engine: Any) -> None:
        """End the process after a save."""
        reason = getattr(self.stop_request.received, "name", "a signal to another process")
        state = engine.state
        self.stop_request.leave(
            engine,
            f"stopped by {reason} in epoch {state.epoch} of {state.max_epochs}, after iteration {state.iteration}; "
            f"saved to {self.files.checkpoint}",
        )

    def save_if_best(self, validator: Any) -> None:
        """Write ``model.pt`` if this validation is the best so far (or nothing better than NaN is known)."""
        value = float(validator.state.metrics[validator.state.key_metric_name])
        is_better = getattr(validator, "metric_cmp_fn", default_metric_cmp_fn)
        if global_rank() == 0 and (self.best_metric is None or is_better(value, self.best_metric)):
            self.best_metric = value if math.isfinite(value) else None
            self.write_model()

    def save(self, engine: Any) -> None:
        """Write both files; with a validator ``model.pt`` only if no validation has. All ranks must call it."""
        random_states = (
            all_gather_object(random_state(self.generators)) if _is_within_epoch(engine) else None
        )
        if global_rank():
            return
        scaler = getattr(engine, "scaler", None)
        state = {
            **{name: item.state_dict() for name, item in self.objects.items()},
            "network": self.network_state(),
            "trainer": engine.state_dict(),
            "dealing": epoch_division(engine.state.dataloader),
            "images": self.images,
            "scaler": None if scaler is None else scaler.state_dict(),
            "best_metric": self.best_metric,
            "random_states": random_states,
        }
        state = {name: value for name, value in state.items() if value is not None}
        self.files.write_checkpoint(state, is_epoch_complete=random_states is None)
        if self.validator is None or not self.files.model.is_file():
            self.write_model()

    def is_model_written(self) -> bool:
        """Whether ``model.pt`` is there and, unless validation has chosen it, is the network as it is now."""
        if self.validator is not None:
            return self.files.model.is_file()
        written = read_description(self.files.model)
        return written is not None and written.digest == tensor_digest(self.network.state_dict())

    def write_model(self) -> None:
        """Write ``model.pt``."""
        self.files.write_model(self.network_state())

    def network_state(self) -> dict[str, torch.Tensor]:
        """The network's state dict as it is written."""
        return with_description(self.network.state_dict(), self.network_description)

    def read(self, path: Path) -> dict[str, Any]:
        """A checkpoint's content, once it is known to fit."""
        state = read_own(path, BACKUP)
        missing = [name for name in ("network", "trainer", *self.objects) if name not in state]
        if missing:
            found = f"{path} has no {' and no '.join(missing)}, only {sorted(state)}"
            raise RuntimeError(
                f"{found}: a run with other settings wrote it; start anew in another folder, without resume"
            )
        if problem := self.files.other_images(self.images, state):
            raise RuntimeError(problem)
        remedy = "resume with the settings of the run that wrote it, or start anew in another folder, without resume"
        self.refuse_other_classes(state["network"], path, remedy)
        check_fits(state["network"], self.network.state_dict(), path, remedy)
        return state

    def refuse_other_classes(self, network_state: Any, path: Path, remedy: str) -> None:
        """Keep a run from going on with a checkpoint whose outputs mean something else."""
        found = carried_description(network_state)
        then, now = getattr(found, "class_names", None), self.network_description.class_names
        if then is None or now is None or then == now:
            return
        classes = f"{first_few(then)} ({len(then)}) there, {first_few(now)} ({len(now)}) now"
        raise RuntimeError(f"{path} is of a run with other classes ({classes}): {remedy}")

    def load(self, engine: Any) -> None:
        """Resume from the checkpoint, or from the last complete epoch if the rest of an epoch cannot be repeated."""
        path, state = self.files.checkpoint, self.read(self.files.checkpoint)
        iteration, epoch_length = (state["trainer"][name] for name in ("iteration", "epoch_length"))
        _check_all_see(path, iteration)
        self.files.is_epoch_complete = not batches_done(iteration, epoch_length)
        then, now = saved_division(state), epoch_division(engine.state.dataloader)
        if not self.files.is_epoch_complete and not has_same_batches(then, now):
            place = (
                f"{path} was saved in the midst of an epoch of {_in_words(then)}, "
                f"but now there are {_in_words(now)}"
            )
            if not self.can_go_back(place, is_first=iteration < epoch_length):
                return
            path, state = self.files.epoch, self.read(self.files.epoch)
        self.restore(engine, state, path)

    def can_go_back(self, place: str, is_first: bool) -> bool:
        """Whether a complete epoch was saved; False when the run must start from the beginning."""
        if not self.files.epoch.is_file() and not is_first:
            same = "resume with the same data, batch size and processes"
            remedy = f"{same}, or start anew in another folder, without resume"
            raise RuntimeError(
                f"{place}, and the last complete epoch was not saved beside it: {remedy}"
            )
        if global_rank() == 0:
            goal = "the beginning"
            if not is_first:
                goal = f"the last complete epoch that was saved, {self.files.epoch}"
            same = "resume with the same data, batch size and number of processes"
            logger.warning(f"{place}: going on from {goal}. To lose nothing, {same}")
        return not is_first

    def restore(self, engine: Any, state: Mapping[str, Any], path: Path) -> None:
        """Load the content of a checkpoint into network, objects and trainer."""
        self.network.load_state_dict(state["network"])
        for name, item in self.objects.items():
            item.load_state_dict(state[name])
        self.best_metric = state.get("best_metric")
        max_epochs, epoch_length = engine.state.max_epochs, engine.state.epoch_length
        now = {**epoch_division(engine.state.dataloader), "batches": epoch_length}
        engine.load_state_dict(state["trainer"])
        engine.state.max_epochs = max_epochs  # more (or fewer) epochs may be asked for now
        if getattr(engine, "scaler", None) is not None and "scaler" in state:
            engine.scaler.load_state_dict(state["scaler"])
        place = f"epoch {engine.state.epoch} of {max_epochs}"
        if _is_within_epoch(engine):
            # let the next epoch be the rest of the one that was interrupted
            done = batches_done(engine.state.iteration, engine.state.epoch_length)
            random_states = partial(
                set_random_state, state["random_states"][global_rank()], self.generators
            )
            engine.state.dataloader = RemainingBatches(engine.state.dataloader, done, random_states)
            place = f"batch {done} of {engine.state.epoch_length} after {place}"
        else:
            adapt_progress(engine, saved_division(state), now)
        logger.info(f"resumed from {path} after {place}")
        if max_epochs is not None and engine.state.epoch >= max_epochs:
            logger.warning("this run is complete already; ask for more epochs to train on")
            self.complete_model(engine)

    def complete_model(self, engine: Any) -> None:
        """Write ``model.pt`` of a complete run, which may have been killed between its last two files."""
        if global_rank() or self.is_model_written():
            return
        if self.best_metric is not None:
            text = "the network of the last epoch, not the one of the best validation"
            logger.warning(f"{self.files.model} is missing: what is written now is {text}")
        self.write_model()


def _images_of(loader: Any) -> dict[str, Any] | None:
    """Fingerprint of the images that a loader of a MONAI ``Dataset`` reads; None where it does not say them."""
    dataset = getattr(loader, "dataset", None)
    return image_fingerprint(getattr(dataset, "data", None))


def _is_within_epoch(engine: Any) -> bool:
    return batches_done(engine.state.iteration, engine.state.epoch_length) > 0


def _in_words(division: Mapping[str, int | None]) -> str:
    return f"{division['batches']} batches on {processes(division['processes'])}"


def _check_all_see(path: Path, what: object) -> None:
    """Stop where the processes of a run do not find the same checkpoint: they would train different networks."""
    found = all_gather_object(what)
    if any(other != found[0] for other in found):
        remedy = "all machines must share the folder; a network drive may need a minute to show a new file"
        raise RuntimeError(
            f"the processes of this run do not see the same {path} ({found}): {remedy}"
        )
