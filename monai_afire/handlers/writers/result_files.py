# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the writers of tables with files beside them: pictures, masks, maps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ignite.engine import Engine

from monai_afire.handlers.writers.result_tables import ResultTables

__all__ = ["ResultFiles"]

_WAITING = 64  # files that may still have to be written; each may hold large arrays


class ResultFiles(ResultTables):
    """
    Base of the writers whose files are written by threads, so that the network need not wait for them.

    ``root`` is the folder that all files of the data set have in common, to name the results by what lies below.

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write.
        table_name: file name of the table.
        num_threads: threads that write.

    Raises:
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    def __init__(
        self, items: Sequence[Mapping[str, Any]], output_dir: str, table_name: str, num_threads: int = 2
    ) -> None:
        super().__init__(items, output_dir, table_name)
        self.num_threads = num_threads
        self.pending: list[Future] = []

    def start(self, engine: Engine) -> None:
        """Open the tables and start the threads."""
        super().start(engine)
        self.pending = []
        self.root = os.path.commonpath([os.path.dirname(item["image"]) for item in self.items])
        self.pool = self.resources.enter_context(ThreadPoolExecutor(self.num_threads))

    def hand_over(self, save: Callable[..., Any], *arguments: Any) -> None:
        """Let a thread save something."""
        self.pending.append(self.pool.submit(save, *arguments))
        self._wait_until(_WAITING)

    def close(self, engine: Engine) -> None:
        """Wait for the threads and close the tables."""
        try:
            self._wait_until(0)
        finally:
            super().close(engine)

    def _wait_until(self, remaining: int) -> None:
        """Wait for the oldest, and raise what went wrong in them, so that neither memory nor errors pile up."""
        while len(self.pending) > remaining:
            self.pending.pop(0).result()
