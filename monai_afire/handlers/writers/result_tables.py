# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bases of the writers: tables of results and of rejected files, which grow while a network runs, and their files."""

from __future__ import annotations

import csv
import logging
import math
import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TextIO

from ignite.engine import Engine, Events

from monai_afire.utils.files import atomic_path, check_writable, keep_previous, mark_results, remove_leftovers
from monai_afire.utils.folder_lock import folder_lock

_TOLERANCE = 0.01  # relative; batches of another size change the last digits, reduced precision a few


def written_name(source: str) -> str:
    """How a table names a file: names need not be valid text."""
    return source.encode("utf-8", "backslashreplace").decode()


class UnfinishedTable:
    """A table of results, one or more successive rows per image, that ends where its run was stopped."""

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self.path = path
        self.header = list(header)

    def complete_rows(self) -> list[list[str]]:
        """Rows of all images but the last two."""
        return [row for image in self._images()[:-2] for row in image]

    def last_complete(self) -> list[list[str]]:
        """Rows of the last image but one, none where there is none."""
        images = self._images()
        return images[-2] if len(images) > 1 else []

    def names(self) -> set[str]:
        """Images whose results are complete."""
        return {row[0] for row in self.complete_rows()}

    def _images(self) -> list[list[list[str]]]:
        """The rows of each image; none where the run was stopped within the header, or just after it."""
        if not self.path.is_file():
            return []
        with self.path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = list(csv.reader(file))
        if len(rows) < 2:
            return []
        if rows[0] != self.header:
            raise ValueError(
                f"{self.path} has the columns {rows[0]}, not {self.header}: resume with the settings of the run "
                "that wrote it, or start anew with resume set to false"
            )
        return [list(image) for _, image in groupby(rows[1:], key=lambda row: row[:1])]


def check_same_row(expected: Sequence[str], found: Sequence[Any], path: Path) -> None:
    """Compare a row that was made anew with the one that a run had written before."""
    if not all(map(_is_same, expected, map(str, found))):
        raise RuntimeError(
            f"{path} has {list(expected)}, but now the result is {[str(cell) for cell in found]}: other weights or "
            "settings made it. Resume with those, or start anew with resume set to false"
        )


def _is_same(expected: str, found: str) -> bool:
    try:
        return math.isclose(float(expected), float(found), rel_tol=_TOLERANCE, abs_tol=1e-4)
    except ValueError:
        return expected == written_name(found)


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
    """Names of files and folders that belong to the table: moved away with it, so that all are of one run."""

    folders: Sequence[str] = ()
    """Names of those folders that this run writes a file of each image to."""

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
        for path in (table.path, rejected.path, *self._beside()):
            remove_leftovers(path)
        self.num_rejected = len(rejected.complete_rows()) if self.resume else 0
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
            self.open_tables()
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

    def _beside(self) -> list[Path]:
        """The files and folders that belong to the table; a file in the way of a folder is not ours."""
        paths = [self.output_dir / name for name in self.derived]
        return [path for path in paths if path.suffix or path.is_dir()]

    def open_tables(self) -> None:
        """At the first row or file: a run that fails before it leaves those of the earlier run where they are."""
        if self.has_rows:
            return
        tables = self._unfinished()
        if not self.resume:
            keep_previous(*(table.path for table in tables), *self._beside())
        mark_results(self.output_dir, (item["image"] for item in self.items), self.folders)
        for table in tables:
            with atomic_path(table.path, flush=self.resume) as temporary, _open(temporary, "w") as file:
                csv.writer(file).writerow(table.header)
                csv.writer(file).writerows(table.complete_rows())
            self.files[table.path.name] = self.resources.enter_context(_open(table.path, "a"))


def _open(path: Path, mode: Literal["a", "w"]) -> TextIO:
    # names of files need not be valid text
    return path.open(mode, newline="", encoding="utf-8", errors="backslashreplace")


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
        self.open_tables()
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
        """Wait for the threads and close the tables; after an error of theirs :meth:`close_after_error` does."""
        self._wait_until(0)
        self._write_complete()
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
