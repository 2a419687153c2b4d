# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the writers: tables that grow while a network runs, of results and of files that failed."""

from __future__ import annotations

import csv
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TextIO

from ignite.engine import Engine, Events

from monai_afire.handlers.writers.unfinished_table import UnfinishedTable, check_same_row, written_name
from monai_afire.utils.files import atomic_path, check_writable, keep_previous
from monai_afire.utils.folder_lock import folder_lock

__all__ = ["EXIT_CODE_REJECTED", "OUTPUT_IS_NAN", "ResultTables"]

logger = logging.getLogger(__name__)

EXIT_CODE_REJECTED = 2
_REJECTED = "rejected.csv"
OUTPUT_IS_NAN = "the network's output is NaN or infinite: look at the image's intensities and at the weights"


class ResultTables(ABC):
    """
    Base of the handlers that write what a network says of each image as soon as it is there.

    A subclass names the columns of its table in :meth:`header` and adds one or more rows per image, the first cell its
    file, in :meth:`collect`. ``rejected.csv`` has one row per file that could not be read, with the reason. Both tables
    grow by whole batches, so that an interrupted run keeps what it has, and memory does not depend on the number of
    images. The tables of an earlier run are moved away when there is a first row for new ones. One process at a time
    may write into the folder. Attach it to an evaluator, whose batches need "index" (the number in ``items``) and may
    have "rejected" (per image a reason, empty for none), see :class:`monai_afire.transforms.LoadRadiographd`.

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write; earlier runs' tables are kept as ``*_previous.csv``, ``*_previous_2.csv``, ....
        table_name: file name of the table.
        resume: go on with the tables that a run with the same settings has left, whose images :meth:`remaining` leaves
            out.

    Raises:
        OSError: when the run starts and ``output_dir`` cannot be written to.
        RuntimeError: when the run starts and another process writes into ``output_dir``; when a run is resumed whose
            last rows come out differently.
        ValueError: when a run is resumed whose table has other columns.

    Example:
        >>> import tempfile, torch
        >>> class Brightness(ResultTables):
        ...     def header(self):
        ...         return ["image", "brightness"]
        ...     def collect(self, engine):
        ...         for row, source in self.accepted(engine.state.batch):
        ...             self.add_row([source, float(engine.state.output[row])])
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: batch["image"].mean((1, 2, 3)))
        >>> tables = Brightness([{"image": "a.png"}, {"image": "b.png"}], folder, "brightness.csv")
        >>> tables.attach(engine)
        >>> batch = {"image": torch.ones(2, 1, 4, 4), "index": torch.arange(2), "rejected": ["", "no image"]}
        >>> _ = engine.run([batch])
        >>> (Path(folder) / "brightness.csv").read_text().split(), tables.num_rejected
        (['image,brightness', 'a.png,1.0'], 1)
    """

    derived: Sequence[str] = ()
    """Names of files that :meth:`complete` makes of the whole table: moved away with the table that they belong to."""

    def __init__(
        self, items: Sequence[Mapping[str, Any]], output_dir: str, table_name: str, resume: bool = False
    ) -> None:
        self.items = items
        self.output_dir = Path(output_dir)
        self.table_name = table_name
        self.resume = resume
        self.num_rejected = 0
        self.rows: list[tuple[str, list[Any]]] = []  # of the batch: table and cells
        self.files: dict[str, TextIO] = {}
        self.last_complete: list[list[str]] = []
        self.resources = ExitStack()

    def remaining(self) -> Sequence[Mapping[str, Any]]:
        """
        The items to give to the network: all, or when a run is resumed those that have no result yet.

        Raises:
            ValueError: when none is left.
        """
        if not self.resume:
            return self.items
        done = {name for table in self._unfinished() for name in table.names()}
        left = [item for item in self.items if written_name(item["image"]) not in done]
        if not left:
            raise ValueError(
                f"nothing is left to do: {self.output_dir / self.table_name} has all {len(self.items)} images; set "
                "resume to false to start anew"
            )
        logger.info(f"{len(self.items) - len(left)} of {len(self.items)} images are done already")
        return left

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.write)
        engine.add_event_handler(Events.COMPLETED, self.close)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.close_after_error)

    def start(self, engine: Engine) -> None:
        """Make sure that results can be written, by this process alone."""
        self.resources.enter_context(folder_lock(check_writable(self.output_dir)))
        table, rejected = self._unfinished()
        self.num_rejected = sum(1 for _ in rejected.complete_rows()) if self.resume else 0
        self.last_complete = table.last_complete() if self.resume else []
        self.rows, self.files = [], {}

    @property
    def has_rows(self) -> bool:
        """Whether this run has written any."""
        return bool(self.files)

    @abstractmethod
    def header(self) -> Sequence[str]:
        """Titles of the table's columns."""

    @abstractmethod
    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch, of those images that :meth:`accepted` gives."""

    def write(self, engine: Engine) -> None:
        """Write the rows of a batch."""
        self.collect(engine)
        rows, self.rows = self.rows, []
        self.write_rows(rows)

    def write_rows(self, rows: Iterable[tuple[str, list[Any]]]) -> None:
        """
        Write rows to disk.

        Args:
            rows: file name of a table, and cells.
        """
        for name, cells in rows:
            if name == self.table_name and self.last_complete and written_name(cells[0]) == self.last_complete[0][0]:
                check_same_row(self.last_complete.pop(0), cells, self.output_dir / name)
            if not self.has_rows:
                self._open_tables()
            csv.writer(self.files[name]).writerow(cells)
        for file in self.files.values():
            file.flush()

    def accepted(self, batch: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
        """
        Go through the images of a batch; the rejected ones are written down, not given.

        Args:
            batch: the evaluator's batch.

        Yields:
            Place in the batch and file of each image that could be read.
        """
        indices = batch["index"].tolist()
        reasons = batch.get("rejected", [""] * len(indices))
        for row, (index, reason) in enumerate(zip(indices, reasons, strict=True)):
            source = self.items[index]["image"]
            if reason:
                self.reject(source, reason)
            else:
                yield row, source

    def add_row(self, cells: Iterable[Any]) -> None:
        """Add a row to the table."""
        self.rows.append((self.table_name, list(cells)))

    def reject(self, source: str, reason: str) -> None:
        """Count a file among the rejected ones and write the reason down."""
        self.num_rejected += 1
        self.rows.append((_REJECTED, [source, reason]))

    def complete(self) -> None:  # noqa: B027  a hook: most tables are all there is
        """Make files of the whole table, which is on disk by now, with the rows that a stopped run has left."""

    def close(self, engine: Engine) -> None:
        """Make what is made of the whole table, and close the files."""
        with self.resources:  # nobody else may write before it is made
            if self.has_rows:
                self.complete()

    def close_after_error(self, engine: Engine, error: BaseException) -> None:
        """Close the files and go on with the error."""
        self.resources.close()
        raise error

    def exit_if_rejected(self) -> None:
        """
        End the process with exit code 2 if files were rejected, after saying so; for the command line.

        Raises:
            SystemExit: with code 2.
        """
        if self.num_rejected:
            path = self.output_dir / _REJECTED
            print(f"{self.num_rejected} of {len(self.items)} files were rejected: see {path}", file=sys.stderr)
            raise SystemExit(EXIT_CODE_REJECTED)

    def _unfinished(self) -> tuple[UnfinishedTable, UnfinishedTable]:
        """The table and that of the rejected files, as they are on disk."""
        table = UnfinishedTable(self.output_dir / self.table_name, self.header())
        return table, UnfinishedTable(self.output_dir / _REJECTED, ["image", "reason"])

    def _open_tables(self) -> None:
        """At the first row: a run that fails before it leaves those of the earlier run where they are."""
        tables = self._unfinished()
        if not self.resume:
            keep_previous(*(table.path for table in tables), *(self.output_dir / name for name in self.derived))
        for table in tables:
            with atomic_path(table.path, flush=self.resume) as temporary, _open(temporary, "w") as file:
                csv.writer(file).writerow(table.header)
                csv.writer(file).writerows(table.complete_rows())
            self.files[table.path.name] = self.resources.enter_context(_open(table.path, "a"))


def _open(path: Path, mode: Literal["a", "w"]) -> TextIO:
    # names of files need not be valid text
    return path.open(mode, newline="", encoding="utf-8", errors="backslashreplace")
