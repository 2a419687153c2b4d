# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Handler that calls a function when an engine starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ignite.engine import Engine, Events

__all__ = ["CallOnStart"]


class CallOnStart:
    """
    Call functions with the engine when it starts for the first time.

    For what a bundle must not do when its config is only read: ``monai.bundle.load`` and ``create_workflow`` run a
    bundle's ``initialize``, where files of weights may be missing and nothing should be written yet; federated learning
    builds its engines from the config and never runs ``run``.

    Args:
        calls: each is called with the engine.

    Example:
        >>> engine = Engine(lambda engine, batch: None)
        >>> CallOnStart([lambda engine: print("started")]).attach(engine)
        >>> _ = engine.run([0], max_epochs=1)
        started
    """

    def __init__(self, calls: Sequence[Callable[[Any], Any]]) -> None:
        self.calls = list(calls)
        self.is_due = True

    def attach(self, engine: Engine) -> None:
        """Register with an engine."""
        engine.add_event_handler(Events.STARTED, self)

    def __call__(self, engine: Any) -> None:
        """Call them in order, once."""
        if self.is_due:
            for call in self.calls:
                call(engine)
        self.is_due = False
