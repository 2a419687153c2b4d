# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that stops a training with a NaN or infinite loss and keeps the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from monai.data import MetaTensor
from monai.engines.utils import IterationEvents
from monai.utils import CommonKeys, ImageMetaKey
from torch import nn

from monai_afire.utils.device import pins_memory
from monai_afire.utils.distributed import global_rank, unwrapped
from monai_afire.utils.files import atomic_path, write_text
from monai_afire.utils.nested import map_nested
from monai_afire.utils.text import first_few

_FILE_KEY = "file"
_NAMED = 20  # files that the message names; the dump has all
_ADVICE = (
    "Check these images; if they are fine, lower the learning rate or switch off reduced precision "
    "(bf16, amp). The last checkpoint is untouched: continue with resume set to true."
)


class NonFiniteLoss:
    """
    Stop a training whose loss is NaN or infinite, before the weights are, and keep what is needed to find out why.

    ignite's ``TerminateOnNan`` ends such a run as if it were complete. Here it is an error that names the images of the
    batch, and ``nonfinite_loss.pt`` (``nonfinite_loss_rank1.pt``, ... from other ranks) holds "files", "iteration",
    "epoch", "loss", the loss's "terms", the "batch" as the loader gave it (less what a ``prepare_batch`` replaced in
    it) and the "network" as it was for this batch: ``torch.load(..., weights_only=True)`` reads it. Beside it
    ``nonfinite_loss.txt`` holds the message with all names.

    The entry "file" of the batch names the images; without it, the metadata of the images does.

    The loss is checked when the backward pass is under way and before the optimizer steps: a GPU has work to do
    while the host waits for its forward pass.

    Args:
        save_dir: folder of the dump.
        network: the network, unwrapped; None for that of the trainer.

    Raises:
        FloatingPointError: while training.

    Example:
        >>> import tempfile
        >>> handler = NonFiniteLoss(tempfile.mkdtemp())
    """

    def __init__(self, save_dir: str, network: nn.Module | None = None) -> None:
        self.save_dir = Path(save_dir)
        self.network = network
        self.loss = torch.zeros(())
        self.arrived: Any = None  # an event of the device, once there was one
        self.files_before: list[str] = []

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(IterationEvents.LOSS_COMPLETED, self.fetch)
        engine.add_event_handler(IterationEvents.BACKWARD_COMPLETED, self.check)

    def fetch(self, engine: Any) -> None:
        """Let the loss come to the host."""
        loss = engine.state.output[CommonKeys.LOSS].detach().float()
        if not pins_memory(loss.device):
            self.loss = loss.cpu()
            return
        # pinned: a copy into other memory would make the host wait here, and the GPU for the backward pass
        self.loss = torch.empty(loss.shape, pin_memory=True).copy_(loss, non_blocking=True)
        module = torch.get_device_module(loss.device)
        self.arrived = module.Event()
        self.arrived.record(module.current_stream(loss.device))

    def check(self, engine: Any) -> None:
        """Raise if the loss is not finite."""
        if self.arrived is not None:
            self.arrived.synchronize()
        files = batch_files(engine.state.batch)
        if not np.isfinite(self.loss.numpy()).all():
            self.stop(engine, files)
        self.files_before = files

    def stop(self, engine: Any, files: list[str]) -> None:
        """Write the dump and raise."""
        state = engine.state
        network = unwrapped(engine.network) if self.network is None else self.network
        terms = {
            name: float(value) for name, value in getattr(engine.loss_function, "terms", {}).items()
        }
        message = self._place_of_loss(state, terms)
        culprits = files
        if not all(bool(parameter.isfinite().all()) for parameter in network.parameters()):
            culprits = self.files_before
            message += "The weights are not finite since the step before, so its batch is named. "
        dump = {
            "files": files,
            "files_before": self.files_before,
            "terms": terms,
            "loss": float(self.loss),
            "iteration": state.iteration,
            "epoch": state.epoch,
            "batch": map_nested(_loadable, state.batch),
            "network": map_nested(_loadable, network.state_dict()),
        }
        text = message + _named(culprits, len(culprits)) + _ADVICE
        written = self.write(dump, text, global_rank())
        raise FloatingPointError(message + _named(culprits, _NAMED) + written + _ADVICE)

    def _place_of_loss(self, state: Any, terms: Mapping[str, float]) -> str:
        """A sentence that says what is not finite, and in which step."""
        step = f"iteration {state.iteration} (epoch {state.epoch})"
        values = ", ".join(f"{name} {value:.4g}" for name, value in terms.items())
        return (
            f"the loss is {float(self.loss):g} in {step}" + (f": {values}" if values else "") + ". "
        )

    def write(self, dump: dict[str, Any], text: str, rank: int) -> str:
        """Write dump and text, and return a sentence that says where they are, or why they are not."""
        path = self.save_dir / (f"nonfinite_loss_rank{rank}.pt" if rank else "nonfinite_loss.pt")
        try:
            with atomic_path(path) as temporary:
                torch.save(dump, temporary)
            write_text(path.with_suffix(".txt"), text + "\n")
        except (OSError, RuntimeError) as error:  # the latter of torch's writer on a full disk
            return f"Batch and weights could not be written to {path} ({error}). "
        return f"Batch and weights are in {path}. "


def _named(files: Sequence[str], shown: int) -> str:
    """A sentence that names the first images of a batch."""
    if not files:
        return f"No {_FILE_KEY!r} in the batch names its images. "
    return f"Images of the batch: {first_few(files, shown)}. "


def batch_files(batch: Any) -> list[str]:
    """File names of a batch's images."""
    if not isinstance(batch, Mapping):
        return []
    names = batch.get(_FILE_KEY)
    if names is None:
        images = [value for value in batch.values() if isinstance(value, MetaTensor)]
        names = next((image.meta.get(ImageMetaKey.FILENAME_OR_OBJ) for image in images), None) or []
    return [names] if isinstance(names, str) else [str(name) for name in names]


def _loadable(value: Any) -> Any:
    """A tensor without metadata on the CPU, text or a number: what can be loaded without running code."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().as_subclass(torch.Tensor)
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
