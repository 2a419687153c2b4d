# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoints that survive a crash and continue exactly."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.engines.utils import default_metric_cmp_fn
from torch import nn

from monai_afire.networks.weights.checkpoint_files import read_pickle
from monai_afire.networks.weights.whole_network import check_fits
from monai_afire.utils.files import atomic_path, check_writable

__all__ = ["ResumableCheckpoint"]

logger = logging.getLogger(__name__)


class ResumableCheckpoint:
    """
    Save a training run after every few epochs, and go on from there when asked to.

    MONAI's ``CheckpointSaver`` writes in place, so that a kill while writing destroys the file, and its trainer forgets
    the AMP scaler. Here every file is complete or absent (temporary file, flush, rename), the scaler is restored, and
    a checkpoint of another architecture is refused with the first differences named.

    Written to ``save_dir``: ``checkpoint.pt`` with all objects, the trainer's progress and the scaler, and ``model.pt``
    with the network's state dict alone. A run that starts anew over an older one keeps that one's files as
    ``*_previous.pt``. Attach it last, after validation.

    Args:
        save_dir: folder of the files; checked to be writable when training starts.
        network: the network, unwrapped (neither compiled nor ``DistributedDataParallel``).
        objects: further objects with state_dict and load_state_dict, e.g. ``{"optimizer": optimizer}``.
        interval: save every so many epochs, and at the end.
        resume: continue from ``checkpoint.pt``; without one, start anew and say so.
        validator: with a validator, ``model.pt`` is the network of the validation with the best key metric, not the
            last one; its ``metric_cmp_fn`` says which of two is better, the larger one by default.

    Raises:
        OSError: when training starts and ``save_dir`` cannot be written to.
        RuntimeError: when the checkpoint does not fit the network.

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
    ) -> None:
        self.checkpoint_file = Path(save_dir) / "checkpoint.pt"
        self.model_file = Path(save_dir) / "model.pt"
        self.network = network
        self.objects = dict(objects or {})
        self.interval = interval
        self.resume = resume
        self.validator = validator
        self.best_metric: float | None = None

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        if self.validator is not None:
            self.validator.add_event_handler(Events.COMPLETED, self.save_if_best)
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.save_if_due)

    def start(self, engine: Any) -> None:
        """Load the checkpoint to resume, or move an older run's files out of the way."""
        if engine.state.iteration > 0:
            return  # a later round of federated learning, for which the same trainer runs on
        if _is_main_rank(engine):
            check_writable(self.checkpoint_file.parent)
        if self.resume and self.checkpoint_file.is_file():
            self.load(engine)
            return
        if self.resume:
            logger.warning(f"nothing to resume: {self.checkpoint_file} does not exist; starting from the beginning")
        if _is_main_rank(engine):
            for path in (self.checkpoint_file, self.model_file):
                if path.is_file():
                    path.replace(path.with_stem(f"{path.stem}_previous"))

    def save_if_due(self, engine: Any) -> None:
        """Save if the interval or the last epoch is reached."""
        epoch = engine.state.epoch
        if _is_main_rank(engine) and (epoch % self.interval == 0 or epoch == engine.state.max_epochs):
            self.save(engine)

    def save_if_best(self, validator: Any) -> None:
        """Write ``model.pt`` if this validation is the best so far (or nothing better than NaN is known)."""
        value = float(validator.state.metrics[validator.state.key_metric_name])
        is_better = getattr(validator, "metric_cmp_fn", default_metric_cmp_fn)
        if _is_main_rank(validator) and (self.best_metric is None or is_better(value, self.best_metric)):
            self.best_metric = value if math.isfinite(value) else None
            _write(self.network.state_dict(), self.model_file)

    def save(self, engine: Any) -> None:
        """Write both files; with a validator ``model.pt`` only if no validation has."""
        model = self.network.state_dict()
        state = {name: item.state_dict() for name, item in self.objects.items()}
        state |= {"network": model, "trainer": engine.state_dict()}
        if getattr(engine, "scaler", None) is not None:
            state["scaler"] = engine.scaler.state_dict()
        if self.best_metric is not None:
            state["best_metric"] = self.best_metric
        _write(state, self.checkpoint_file)
        if self.validator is None or not self.model_file.is_file():
            _write(model, self.model_file)

    def load(self, engine: Any) -> None:
        """Restore network, objects, progress and scaler from the checkpoint."""
        state = read_pickle(self.checkpoint_file)
        missing = [name for name in ("network", "trainer", *self.objects) if name not in state]
        if missing:
            raise RuntimeError(
                f"{self.checkpoint_file} has no {' and no '.join(missing)}, only {sorted(state)}: a run with other "
                "settings wrote it; start anew with resume set to false"
            )
        remedy = "resume with the settings of the run that wrote it, or start anew with resume set to false"
        check_fits(state["network"], self.network.state_dict(), self.checkpoint_file, remedy)
        self.network.load_state_dict(state["network"])
        for name, item in self.objects.items():
            item.load_state_dict(state[name])
        self.best_metric = state.get("best_metric")
        max_epochs = engine.state.max_epochs
        engine.load_state_dict(state["trainer"])
        engine.state.max_epochs = max_epochs  # more (or fewer) epochs may be asked for now
        if getattr(engine, "scaler", None) is not None and "scaler" in state:
            engine.scaler.load_state_dict(state["scaler"])
        logger.info(f"resumed from {self.checkpoint_file} after epoch {engine.state.epoch} of {max_epochs}")
        if max_epochs is not None and engine.state.epoch >= max_epochs:
            logger.warning("this run is complete already; ask for more epochs to train on")


def _write(content: Any, path: Path) -> None:
    with atomic_path(path) as temporary:
        torch.save(content, temporary)


def _is_main_rank(engine: Any) -> bool:
    return getattr(engine.state, "rank", 0) == 0
