# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoints that survive a crash, and resumption that continues exactly."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.engines.utils import default_metric_cmp_fn
from torch import nn
from torch.optim import Optimizer

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
from monai_afire.handlers.run_folder import RunFolder
from monai_afire.handlers.stop_request import StopRequest
from monai_afire.handlers.teacher import is_optimizer_step
from monai_afire.networks.weights.checkpoint_files import read_own
from monai_afire.networks.weights.description import describe, with_description
from monai_afire.networks.weights.model_file import check_fits
from monai_afire.utils.distributed import all_gather_object, global_rank

__all__ = ["ResumableCheckpoint"]

logger = logging.getLogger(__name__)


class ResumableCheckpoint:
    """
    Save a training run after every few epochs, and go on from there when asked to.

    This replaces MONAI's ``CheckpointSaver``, which overwrites the file in place, so that a kill while writing destroys
    it, and whose trainer forgets the AMP scaler. Here every file is complete or absent (temporary file, flush, rename),
    the scaler is restored, and a checkpoint of another architecture is refused with the first differences named.

    Written to ``save_dir``: ``checkpoint.pt`` with all objects, the trainer's progress and the scaler, and ``model.pt``
    with the network's state dict alone. A run that starts anew over an older one keeps that one's files as
    ``*_previous.pt``, ``*_previous_2.pt`` and so on: the checkpoint when it starts, the model when it has one of its
    own. One run at a time may write into the folder, which the machines of a run share. Attach it last, after
    validation.

    A signal (SIGTERM: the cluster needs the machine; SIGUSR1: SLURM's ``--signal=USR1@120`` ahead of the time limit)
    saves after the current iteration and ends the process with code 143. The run that resumes such a checkpoint loads
    and drops the batches that the epoch has had and goes on with the random state of then: with
    :class:`~monai_afire.handlers.EpochSeed` and the same settings, loader processes and ranks included, it ends like
    one that was not interrupted. In the last iteration of an epoch the validation comes first. See
    :class:`~monai_afire.handlers.stop_request.StopRequest` for what the processes of a run agree on. Beside such a
    checkpoint that of the last complete epoch stays as ``checkpoint_epoch.pt``, until the next epoch is saved: with
    another number of processes, or epochs of another length, the run goes on from there, and says so.

    Args:
        save_dir: folder of the files; checked to be writable when training starts.
        network: the network, unwrapped (neither compiled nor ``DistributedDataParallel``).
        objects: further objects with state_dict and load_state_dict, e.g. ``{"optimizer": optimizer}``.
        interval: save every so many epochs, and at the end.
        resume: continue from ``checkpoint.pt``; without one, start anew and say so.
        validator: with a validator, ``model.pt`` is the network of the validation with the best key metric, not the
            last one; its ``metric_cmp_fn`` says which of two is better, the larger one by default.
        generators: generators of random numbers besides the global ones, with ``get_state`` and ``set_state``.
        stop_signals: signals that save and end the run, none for never.
        description: what the files say about the network besides its definition, arguments of
            :func:`monai_afire.networks.describe`.

    A checkpoint of a complete epoch may be resumed by any number of processes and with epochs of another length
    (another batch size, other images): progress and schedules follow the new one, and it is said whether the global
    batch has changed.

    Raises:
        OSError: when training starts and ``save_dir`` cannot be written to or has no room for the files; while
            training, when a file cannot be written: the last complete one stays.
        RuntimeError: when another process is writing into the folder; when the checkpoint does not fit the network, or,
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

    def __init__(
        self,
        save_dir: str,
        network: nn.Module,
        objects: Mapping[str, Any] | None = None,
        interval: int = 1,
        resume: bool = False,
        validator: Engine | None = None,
        generators: Sequence[Any] = (),
        stop_signals: Sequence[str] = ("SIGTERM", "SIGUSR1"),
        description: Mapping[str, Any] | None = None,
    ) -> None:
        self.files = RunFolder(save_dir)
        self.network = network
        self.objects = dict(objects or {})
        self.interval = interval
        self.resume = resume
        self.validator = validator
        self.generators = list(generators)
        self.stop_request = StopRequest(stop_signals)
        self.description = describe(network, **(description or {}))
        self.best_metric: float | None = None
        self.is_resumed = False

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        self.stop_request.attach(engine)
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.save_if_asked)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.save_if_due)

    def start(self, engine: Any) -> None:
        """Load the checkpoint to resume, or move that of an older run out of the way."""
        # only now: an evaluation with the same evaluator, without training, must not write the model
        if self.validator is not None and not self.validator.has_event_handler(self.save_if_best):
            self.validator.add_event_handler(Events.COMPLETED, self.save_if_best)
        if global_rank() == 0:
            self.stop_request.call_at_end(self.files.claim(self.resume).close)
        if engine.state.iteration > 0:
            return  # a later round of federated learning, for which the same trainer runs on
        self.is_resumed = self.resume and self.files.checkpoint.is_file()
        self.files.is_first_write = not self.is_resumed
        if global_rank() == 0:
            self.check_disk()
        self.stop_request.shield(getattr(self.validator, "data_loader", None))
        _check_all_see(self.files.checkpoint, self.is_resumed)
        if self.is_resumed:
            self.load(engine)
            return
        if self.resume and global_rank() == 0:
            logger.warning(f"nothing to resume: {self.files.checkpoint} does not exist; starting from the beginning")
        if global_rank() == 0:
            # at once: this run, resumed before its first save, must not go on from the older one's checkpoint
            self.files.keep_older_checkpoint()

    def check_disk(self) -> None:
        """Make sure that the files of this run can be written, each beside the one that it is going to replace."""
        model = sum(_num_bytes(value) for value in self.network.state_dict().values())
        optimizers = [item for item in self.objects.values() if isinstance(item, Optimizer)]
        parameters = [p for item in optimizers for group in item.param_groups for p in group["params"]]
        checkpoint = model + 2 * sum(_num_bytes(p) for p in parameters)  # Adam's two moments
        self.files.check_room(checkpoint, model, self.is_resumed)

    def save_if_asked(self, engine: Any) -> None:
        """Save and leave if a signal has come and the iteration is complete: no gradient waits for others."""
        if not engine.state.epoch_length or not self.stop_request.agreed(engine) or not is_optimizer_step(engine):
            return
        self.save(engine)
        if _is_within_epoch(engine):  # at an epoch's end validation comes first, if there is time left for it
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
            f"saved to {self.files.checkpoint}. Run the same command with resume set to true (--resume true) to go on",
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
        random_states = all_gather_object(random_state(self.generators)) if _is_within_epoch(engine) else None
        if global_rank():
            return
        state = {name: item.state_dict() for name, item in self.objects.items()}
        state |= {"network": self.network_state(), "trainer": engine.state_dict()}
        state["dealing"] = epoch_division(engine.state.dataloader)
        if getattr(engine, "scaler", None) is not None:
            state["scaler"] = engine.scaler.state_dict()
        if self.best_metric is not None:
            state["best_metric"] = self.best_metric
        if random_states is not None:
            state["random_states"] = random_states
        self.files.write_checkpoint(state, is_epoch_complete=random_states is None)
        if self.validator is None or not self.files.model.is_file():
            self.write_model()

    def write_model(self) -> None:
        """Write ``model.pt``."""
        self.files.write_model(self.network_state())

    def network_state(self) -> dict[str, torch.Tensor]:
        """The network's state dict as it is written."""
        return with_description(self.network.state_dict(), self.description)

    def read(self, path: Path) -> dict[str, Any]:
        """A checkpoint's content, once it is known to fit."""
        backup = "take it from a backup, or start anew with resume set to false (model.pt beside it may be whole)"
        state = read_own(path, backup)
        missing = [name for name in ("network", "trainer", *self.objects) if name not in state]
        if missing:
            raise RuntimeError(
                f"{path} has no {' and no '.join(missing)}, only {sorted(state)}: a run with other "
                "settings wrote it; start anew with resume set to false"
            )
        remedy = "resume with the settings of the run that wrote it, or start anew with resume set to false"
        check_fits(state["network"], self.network.state_dict(), path, remedy)
        return state

    def load(self, engine: Any) -> None:
        """Go on from the checkpoint, or from that of the last complete epoch where its rest cannot be had."""
        path, state = self.files.checkpoint, self.read(self.files.checkpoint)
        _check_all_see(path, _progress(state)["iteration"])
        self.files.is_epoch_complete = not batches_done(**_progress(state))
        then, now = saved_division(state), epoch_division(engine.state.dataloader)
        if not self.files.is_epoch_complete and not has_same_batches(then, now):
            place = (
                f"{path} was saved in the midst of an epoch of {_in_words(then)}, but now there are {_in_words(now)}"
            )
            if not self.can_go_back(state, place):
                return
            path, state = self.files.epoch, self.read(self.files.epoch)
        self.restore(engine, state, path)

    def can_go_back(self, state: Mapping[str, Any], place: str) -> bool:
        """Whether there is a complete epoch to go on from; False when the run must start from the beginning."""
        is_first = _progress(state)["iteration"] < _progress(state)["epoch_length"]
        remedy = "To lose nothing, resume with the same data, batch size and number of processes"
        if not self.files.epoch.is_file() and not is_first:
            raise RuntimeError(
                f"{place}, and the last complete epoch was not saved beside it: resume with the same data, batch size "
                "and number of processes, at least until the epoch is complete, or start anew with resume set to false"
            )
        if global_rank() == 0:
            goal = f"the last complete epoch that was saved, {self.files.epoch}" if not is_first else "the beginning"
            logger.warning(f"{place}: going on from {goal}. {remedy}")
        return not is_first

    def restore(self, engine: Any, state: Mapping[str, Any], path: Path) -> None:
        """Put the content of a checkpoint into network, objects and trainer."""
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
            done = self.continue_epoch(engine, state["random_states"])
            place = f"batch {done} of {engine.state.epoch_length} after {place}"
        else:
            adapt_progress(engine, saved_division(state), now)
        logger.info(f"resumed from {path} after {place}")
        if max_epochs is not None and engine.state.epoch >= max_epochs:
            logger.warning("this run is complete already; ask for more epochs to train on")
            self.complete_model(engine)

    def continue_epoch(self, engine: Any, random_states: Sequence[Mapping[str, Any]]) -> int:
        """
        Let the next epoch be the rest of the one that was interrupted.

        Args:
            engine: the trainer with its progress restored.
            random_states: of each rank, where it was interrupted.

        Returns:
            How many batches of it are done.
        """
        state, done = random_states[global_rank()], batches_done(engine.state.iteration, engine.state.epoch_length)
        engine.state.dataloader = RemainingBatches(
            engine.state.dataloader, done, lambda: set_random_state(state, self.generators)
        )
        return done

    def complete_model(self, engine: Any) -> None:
        """Write ``model.pt`` of a complete run, which may have been killed between its last two files."""
        if global_rank() or (self.validator is not None and self.files.model.is_file()):
            return
        if self.best_metric is not None:
            logger.warning(
                f"{self.files.model} is missing: what is written now is the network of the last epoch, not the one of "
                "the best validation"
            )
        self.write_model()


def _is_within_epoch(engine: Any) -> bool:
    return batches_done(engine.state.iteration, engine.state.epoch_length) > 0


def _progress(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state["trainer"][name] for name in ("iteration", "epoch_length")}


def _in_words(division: Mapping[str, int | None]) -> str:
    return f"{division['batches']} batches on {processes(division['processes'])}"


def _check_all_see(path: Path, what: object) -> None:
    """Stop where the processes of a run do not find the same checkpoint: they would train different networks."""
    found = all_gather_object(what)
    if any(other != found[0] for other in found):
        raise RuntimeError(
            f"the processes of this run do not see the same {path} (process by process: {found}): all machines must "
            "share the folder; a network drive may need a minute to show a new file everywhere"
        )


def _num_bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
