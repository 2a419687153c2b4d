# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Message at the end of a run: where its results are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ignite.engine import Engine, Events

from monai_afire.utils.distributed import global_rank
from monai_afire.utils.files import joined_path

__all__ = ["ClosingMessage"]


@dataclass(eq=False, repr=False)
class ClosingMessage:
    """
    Print where the results are, when a run is complete. Only files that exist are named.

    Args:
        files: what it is -> the file or folder, as text or as parts to be joined.

    Example:
        >>> engine = Engine(lambda engine, batch: None)
        >>> ClosingMessage(files={"home": os.sep, "model": ["no", "model.pt"]}).attach(engine)
        >>> _ = engine.run([0])
        home:      /
    """

    files: Mapping[str, str | Sequence[str]]

    def attach(self, engine: Engine) -> None:
        """Register with an engine."""
        engine.add_event_handler(Events.COMPLETED, self)

    def __call__(self, engine: Any = None) -> None:
        """Print the message, once for all ranks."""
        if global_rank() == 0 and (lines := self.lines()):
            width = max(11, *(len(name) + 2 for name in lines))
            for name, text in lines.items():
                print(f"{f'{name}:':{width}}{text}", flush=True)

    def lines(self) -> dict[str, str]:
        """What there is to say now: name -> text."""
        paths = {name: str(joined_path(path)) for name, path in self.files.items()}
        return {name: path for name, path in paths.items() if os.path.exists(path)}
