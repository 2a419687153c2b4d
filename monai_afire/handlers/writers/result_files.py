# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the writers of tables with files beside them: pictures, masks, maps."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ignite.engine import Engine

from monai_afire.handlers.writers.result_tables import ResultTables

__all__ = ["ResultFiles"]

_WAITING = 64  # files that may still have to be written; each may hold large arrays


class ResultFiles(ResultTables):
    """
    Base of the writers whose files are written by threads, so that the network need not wait for them.

    A row is written when the files of its batch are complete, so that what has a row need not be made again.
    ``root`` is the folder that all files of the data set have in common, to name the results by what lies below.

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write.
        table_name: file name of the table.
        num_threads: threads that write.
        resume: go on where a run was stopped.

    Raises:
        OSError: when the run starts and ``output_dir`` cannot be written to.
    """

    def __init__(
        self,
        items: Sequence[Mapping[str, Any]],
        output_dir: str,
        table_name: str,
        num_threads: int = 2,
        resume: bool = False,
    ) -> None:
        super().__init__(items, output_dir, table_name, resume)
        self.num_threads = num_threads
        self.pending: deque[Future] = deque()
        self.batches: deque[tuple[int, list[tuple[str, list[Any]]]]] = deque()

    def start(self, engine: Engine) -> None:
        """Open the tables and start the threads."""
        super().start(engine)
        self.pending.clear()
        self.batches.clear()
        self.num_saved = 0
        self.root = os.path.commonpath([os.path.dirname(item["image"]) for item in self.items])
        self.pool = self.resources.enter_context(ThreadPoolExecutor(self.num_threads))

    def hand_over(self, save: Callable[..., Any], *arguments: Any) -> None:
        """Let a thread save something."""
        self.pending.append(self.pool.submit(save, *arguments))
        self._wait_until(_WAITING)

    def write(self, engine: Engine) -> None:
        """Hand over the files of a batch, and write the rows of those batches whose files are complete."""
        self.collect(engine)
        self.batches.append((self.num_saved + len(self.pending), self.rows))
        self.rows = []
        self._wait_until(_WAITING)
        self._write_complete()

    def close(self, engine: Engine) -> None:
        """Wait for the threads and close the tables."""
        try:
            self._wait_until(0)
            self._write_complete()
        except BaseException:
            self.resources.close()
            raise
        super().close(engine)

    def close_after_error(self, engine: Engine, error: BaseException) -> None:
        """Keep what is complete, close the tables and go on with the error."""
        with suppress(Exception):  # of a thread: it is the one that is raised, or comes after it
            self._wait_until(0)
        self._write_complete()
        super().close_after_error(engine, error)

    def _write_complete(self) -> None:
        while self.batches and self.batches[0][0] <= self.num_saved:
            self.write_rows(self.batches.popleft()[1])

    def _wait_until(self, remaining: int) -> None:
        """Wait for the oldest, and raise what went wrong in them, so that neither memory nor errors pile up."""
        while self.pending and (len(self.pending) > remaining or self.pending[0].done()):
            self.pending[0].result()  # one that failed stays the first: nothing behind it counts as saved
            self.pending.popleft()
            self.num_saved += 1
