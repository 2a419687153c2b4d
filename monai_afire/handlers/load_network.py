# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights of a network, loaded when an engine starts."""

from __future__ import annotations

import os

from ignite.engine import Engine, Events
from torch import nn

from monai_afire.networks.weights.whole_network import load_network

__all__ = ["NetworkLoader"]


class NetworkLoader:
    """
    Load the weights that a bundle's run has written when an engine starts for the first time.

    MONAI's ``CheckpointLoader`` does the same for any objects. This one says what to do where the file is missing, and
    refuses another architecture by its first differences (:func:`monai_afire.networks.load_network`). It waits for the
    engine to start because ``monai.bundle.load`` and ``create_workflow`` build a bundle's engines, too, where the file
    may not be there yet.

    Args:
        network: unwrapped, of the settings of the run that wrote the file.
        path: the file.
        hint: what to do if there is no such file, for the message.

    Raises:
        FileNotFoundError: when the engine starts and there is no such file.
        RuntimeError: when the engine starts and the file holds another architecture.

    Example:
        >>> import tempfile, torch
        >>> path, network = os.path.join(tempfile.mkdtemp(), "model.pt"), nn.Linear(2, 1)
        >>> torch.save(nn.Linear(2, 1).state_dict(), path)
        >>> engine = Engine(lambda engine, batch: network(batch))
        >>> NetworkLoader(network, path).attach(engine)
    """

    def __init__(self, network: nn.Module, path: str | os.PathLike, hint: str = "") -> None:
        self.network = network
        self.path = path
        self.hint = hint
        self.is_due = True

    def attach(self, engine: Engine) -> None:
        """Register with an engine."""
        engine.add_event_handler(Events.STARTED, self)

    def __call__(self, engine: Engine) -> None:
        """Load, once."""
        if self.is_due:
            self.load()

    def load(self) -> None:
        """Load now, for what runs without an engine."""
        load_network(self.network, self.path, self.hint)
        self.is_due = False
