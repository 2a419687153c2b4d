# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that stops a training with a NaN or infinite loss, and names the images of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from ignite.engine import Engine
from monai.data import MetaTensor
from monai.engines.utils import IterationEvents
from monai.utils import CommonKeys, ImageMetaKey

from monai_afire.utils.device import pins_memory
from monai_afire.utils.text import first_few

__all__ = ["NonFiniteLoss"]


class NonFiniteLoss:
    """
    Stop a training whose loss is NaN or infinite, before the optimizer steps.

    ignite's ``TerminateOnNan`` ends such a run as if it were complete. Here it is an error that names the images of the
    batch, by its entry "file" or the metadata of its images. The loss is looked at when the backward pass is under way,
    so that a GPU has work to do while the host waits for its forward pass.

    Raises:
        FloatingPointError: while training.
    """

    def __init__(self) -> None:
        self.loss = torch.zeros(())
        self.arrived: Any = None  # an event of the device, once there was one

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
        if bool(self.loss.isfinite().all()):
            return
        step = f"iteration {engine.state.iteration} (epoch {engine.state.epoch})"
        terms = getattr(engine.loss_function, "terms", None) or {}
        values = "".join(f", {name} {float(term):.4g}" for name, term in terms.items())
        raise FloatingPointError(
            f"the loss is {float(self.loss):g} in {step}{values}. Images of the batch: "
            f"{first_few(_batch_files(engine.state.batch)) or 'not named'}. Check them; if they are fine, lower "
            "the learning rate or switch off reduced precision. The checkpoint of the last epoch is untouched"
        )


def _batch_files(batch: Any) -> list[str]:
    """File names of a batch's images."""
    if not isinstance(batch, Mapping):
        return []
    names = batch.get("file")
    if names is None:
        images = [value for value in batch.values() if isinstance(value, MetaTensor)]
        names = next((image.meta.get(ImageMetaKey.FILENAME_OR_OBJ) for image in images), None) or []
    return [names] if isinstance(names, str) else [str(name) for name in names]
