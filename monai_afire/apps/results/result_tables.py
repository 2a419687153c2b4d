# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the writers: tables of results and of rejected files."""

from __future__ import annotations

import csv
import logging
import math
import shutil
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events

from monai_afire.apps.results.batch_files import save_batch, saved_batches
from monai_afire.data.datalist.scanning import mark_results
from monai_afire.handlers.stop_request import StopRequest
from monai_afire.utils.distributed import barrier, global_rank, share_of, world_size
from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    common_folder,
    refuse_existing,
    remove_leftovers,
)
from monai_afire.utils.folder_lock import folder_lock, launcher_patience

_Batches = list[Sequence[Mapping[str, Any]]]
_Rows = dict[str, list[tuple[str, list[str]]]]  # by image: the table and the cells of each row


@dataclass
class _Results:
    """The rows of a batch, what writes its files, and these files, which threads write."""

    rows: _Rows = field(default_factory=dict)
    saves: list[Callable[[], Any]] = field(default_factory=list)
    files: list[Future] = field(default_factory=list)


_RESUME_ALIKE = (
    "Resume with those of the stopped run, or start anew in another folder, without resume"
)
# relative; batches of another size change the last digits, reduced precision a few
_TOLERANCE = 0.01


def written_name(source: str) -> str:
    """How a table names a file: names need not be valid text."""
    return source.encode("utf-8", "backslashreplace").decode()


def table_rows(path: Path, header: Sequence[str]) -> list[list[str]]:
    """Rows of a table that a run has written; none where there is none."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.reader(file))
    if header:
        check_columns(path, rows.pop(0), header)
    return rows


def check_columns(path: Path, found: Sequence[str], header: Sequence[str]) -> None:
    """Keep a resumed run from mixing its results with those of another kind."""
    if list(found) != list(header):
        raise ValueError(
            f"{path} has the columns {list(found)}, not {list(header)}: resume with the settings of the run that "
            "wrote it, or start anew in another folder, without resume"
        )


def check_same_row(expected: Sequence[str], found: Sequence[str], path: Path) -> None:
    """Compare a row that was computed again with the one that a stopped run had written."""
    differing = [pair for pair in zip(expected, found, strict=True) if not _is_same(*pair)]
    if differing:
        before, now = differing[0]
        raise RuntimeError(
            f"{path}: the result of {expected[0]} was {before!r} and is now {now!r}: its picture, the weights or the "
            f"settings are others. {_RESUME_ALIKE}"
        )


def _is_same(expected: str, found: str) -> bool:
    try:
        return math.isclose(float(expected), float(found), rel_tol=_TOLERANCE, abs_tol=1e-4)
    except ValueError:
        return expected == found


logger = logging.getLogger(__name__)

EXIT_CODE_REJECTED = 2
_REJECTED = "rejected.csv"
_REJECTED_HEADER = ["image", "reason"]
_PARTS = "parts"  # folder of the finished batches, until a run ends
_WAITING = 64  # files that may still have to be written; each may hold large arrays
OUTPUT_IS_NAN = (
    "the network's output is NaN or infinite: check the intensities of the image and the weights"
)


class ResultTables(ABC):
    """
    Base of the handlers that write the results of each image while the network runs.

    A subclass names the columns of its table in :meth:`header`. In :meth:`collect` it adds one or more rows per image,
    the first cell its file, and may submit functions that write further files. Threads call these functions, so the
    network need not wait. ``rejected.csv`` has one row per file without a result, with the reason.

    A resumed run computes a batch that has results again. Its rows are compared with those on disk before any file of
    it is written. A run that is complete, with all images of the list, is compared and left as it is.

    A signal (SIGTERM, SIGUSR1, Ctrl-C) ends the run after the present batch, as it ends a training.

    The rows of a batch go to a file in ``parts``, when the files of the batch are complete. At the end they become the
    tables, also after an error; those of a killed run stay in ``parts`` until it is resumed. One run at a time may
    write into the folder, and one with the results of another run is refused.

    A run may have many processes (``join_process_group``), on one or many machines that share the
    folder. Each scores its share of the batches; at the end the main one joins them in the order of the list. A stopped
    run may be resumed by another number of processes.

    Attach it to an evaluator. Its batches need "index" (the number in ``items``) and may have "rejected" (per image a
    reason, empty for none), see :class:`monai_afire.transforms.LoadRadiographd`.

    Attributes:
        items: the data set's items, for the names of the files; each subclass has them as an argument.
        output_dir: where to write, likewise.
        table_name: file name of the table.
        resume: continue the tables of a stopped run with the same settings; :meth:`remaining` leaves its images out.
        num_threads: threads that write the submitted files.
        derived: names of files and folders that belong to the table.
        folders: names of the folders that this run writes a file of each image to.

    Raises:
        FileExistsError: when a new run starts and ``output_dir`` has the results of another one.
        OSError: when the run starts and ``output_dir`` cannot be written to.
        RuntimeError: when the run starts and another process writes into ``output_dir``; when rows that a resumed
            run computes again differ; when the machines of a run do not share ``output_dir``.
        StoppedBySignal: after a signal, when the tables of what is complete are written.
        ValueError: when the table of a resumed run has other columns, or images that are not in the present list.

    Example:
        >>> import tempfile, torch
        >>> class Brightness(ResultTables):
        ...     table_name, output_dir = "brightness.csv", tempfile.mkdtemp()
        ...     items = [{"image": "a.png"}, {"image": "b.png"}]
        ...     def header(self):
        ...         return ["image", "brightness"]
        ...     def collect(self, engine):
        ...         for row, source in self.accepted(engine.state.batch):
        ...             self.add_row([source, float(engine.state.output[row])])
        >>> tables, engine = Brightness(), Engine(lambda engine, batch: batch["image"].mean((1, 2, 3)))
        >>> tables.attach(engine)
        >>> batch = {"image": torch.ones(2, 1, 4, 4), "index": torch.arange(2), "rejected": ["", "no image"]}
        >>> _ = engine.run([batch])
        >>> (tables.folder / "brightness.csv").read_text().split(), tables.num_rejected
        (['image,brightness', 'a.png,1.0'], 1)
    """

    items: Sequence[Mapping[str, Any]]
    output_dir: str
    table_name: str
    resume = False
    num_threads = 2
    num_rejected = 0
    derived: Sequence[str] = ()
    folders: Sequence[str] = ()

    @property
    def folder(self) -> Path:
        """Path of ``output_dir``."""
        return Path(self.output_dir)

    def remaining(self, batch_size: int = 1) -> Sequence[Mapping[str, Any]]:
        """
        The items to give to this process's network: its share of all, or of those that a stopped run has left.

        Batches are left or shared as a whole. An image is always in the same batch, so its result does not depend on
        stops and on the number of processes, not even in the last digit.

        Args:
            batch_size: of the loader that takes the items in their order.

        Returns:
            Items. In a resumed run each process begins with a batch that has a result, to compare.

        Raises:
            ValueError: when the stopped run had other images, or other columns.
        """
        if not self.resume and world_size() == 1:
            return self.items
        batches = [
            self.items[start : start + batch_size]
            for start in range(0, len(self.items), batch_size)
        ]
        compared, left = self._left(batches) if self.resume else ([], batches)
        # an engine cannot run on nothing: a process without a share repeats a batch
        share = [*compared, *share_of(left)] or batches[:1]
        return [item for batch in share for item in batch]

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        self.waiting: deque[_Results] = deque()  # batches whose files are being written
        self.resources = ExitStack()
        self.is_marked = False
        self.stop_request = StopRequest()
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.STARTED, self.stop_request.listen)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.write)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.leave_if_asked)
        engine.add_event_handler(Events.TERMINATE, self.stop_request.terminated)
        engine.add_event_handler(Events.COMPLETED, self.close)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.close_after_error)

    def start(self, engine: Engine) -> None:
        """Make sure that results can be written, by this run alone, and start the threads."""
        found = self._finished() if self.resume else {}
        self.expected = {image: self._own_rows(rows) for image, rows in found.items()}
        missing = any(written_name(item["image"]) not in found for item in self.items)
        self.is_complete = self.resume and not missing
        barrier()  # nobody writes before all have read
        if global_rank() == 0:
            self.resources.enter_context(
                folder_lock(check_writable(self.folder), launcher_patience(self.resume))
            )
            if not self.resume:
                refuse_existing(*self._paths())
            for path in self._paths():
                remove_leftovers(path)
        barrier()  # nor before the main one has looked
        self.num_rejected = 0
        self.batch = _Results()
        self.waiting.clear()
        self.pool = self.resources.enter_context(ThreadPoolExecutor(self.num_threads))

    @cached_property
    def root(self) -> str:
        """The folder that all files of the data set have in common: results are named by their paths below it."""
        return common_folder(item["image"] for item in self.items)

    @abstractmethod
    def header(self) -> Sequence[str]:
        """Titles of the table's columns; none for a table that begins with its first row."""

    @abstractmethod
    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch, of those images that :meth:`accepted` gives."""

    def write(self, engine: Engine) -> None:
        """Compare the rows, submit the files, and save the rows of those batches whose files are complete."""
        self.collect(engine)
        batch, self.batch = self.batch, _Results()
        self._compare(batch.rows)
        if self.is_complete:
            return
        self._mark()
        batch.files = [self.pool.submit(save) for save in batch.saves]
        batch.saves.clear()  # they hold pictures
        self.waiting.append(batch)
        self._save_complete(_WAITING)

    def leave_if_asked(self, engine: Engine) -> None:
        """End the run after this batch if a signal has come; each process has its own."""
        signal = self.stop_request.received
        if signal is not None:
            message = f"stopped by {signal.name}: what is complete is in {self.folder}"
            self.stop_request.leave(engine, message)

    def accepted(
        self, batch: Mapping[str, Any], is_number: torch.Tensor | None = None
    ) -> Iterator[tuple[int, str]]:
        """
        Iterate over the images of a batch that have a result; the others go to ``rejected.csv``.

        Args:
            batch: the evaluator's batch.
            is_number: ``(B,)`` bool, False where the network's output is NaN; None for nowhere.

        Yields:
            Row in the batch, and file.
        """
        indices = batch["index"].tolist()
        reasons = batch.get("rejected", [""] * len(indices))
        for row, (index, reason) in enumerate(zip(indices, reasons, strict=True)):
            source = self.items[index]["image"]
            if reason or (is_number is not None and not is_number[row]):
                self.reject(source, reason or OUTPUT_IS_NAN)
            else:
                yield row, source

    def add_row(self, cells: Iterable[Any]) -> None:
        """Add a row to the table."""
        self._add(self.table_name, cells)

    def reject(self, source: str, reason: str) -> None:
        """Count a file as rejected and record the reason."""
        self.num_rejected += 1
        self._add(_REJECTED, [source, reason])

    def _add(self, table: str, cells: Iterable[Any]) -> None:
        texts = ["" if cell is None else written_name(str(cell)) for cell in cells]
        self.batch.rows.setdefault(texts[0], []).append((table, texts))

    def submit(self, save: Callable[..., Any], *arguments: Any) -> None:
        """Let a thread save a file of the present batch, as soon as its rows are known to be those on disk."""
        self.batch.saves.append(partial(save, *arguments))

    def complete(self) -> None:  # noqa: B027  a hook: most writers have nothing but their table
        """Write files that depend on the whole table, which is on disk by now."""

    def close(self, engine: Engine) -> None:
        """Wait for the threads, write what depends on the whole table, and close the files."""
        self.stop_request.restore()
        self._save_complete(0)  # after an error of a thread close_after_error closes
        with self.resources:  # no other run may write before complete() has
            barrier()
            if self.is_complete:
                self.num_rejected = len(table_rows(self.folder / _REJECTED, _REJECTED_HEADER))
                logger.info(f"{self.folder} is complete already: nothing in it was changed")
            elif global_rank() == 0 and self._join():
                self.complete()

    def close_after_error(self, engine: Engine, error: BaseException) -> None:
        """Keep what is complete, and raise the error."""
        self.stop_request.restore()
        with suppress(Exception):  # of a thread: it is the one that is raised, or comes after it
            self._save_complete(0)
        with self.resources:
            if self.is_marked and world_size() == 1:  # not where the run was refused
                self._join()
        raise error

    def exit_if_rejected(self) -> None:
        """
        End the process with exit code 2 if files were rejected, after saying so; for the command line.

        One of many processes does not end: ``torchrun`` would take it for a failure, and start all of them again.

        Raises:
            SystemExit: with code 2.
        """
        if self.num_rejected and global_rank() == 0:
            path = self.folder / _REJECTED
            print(
                f"{self.num_rejected} of {len(self.items)} files were rejected: see {path}",
                file=sys.stderr,
            )
            if world_size() == 1:
                raise SystemExit(EXIT_CODE_REJECTED)

    def _headers(self) -> dict[str, Sequence[str]]:
        return {self.table_name: self.header(), _REJECTED: _REJECTED_HEADER}

    def _finished(self) -> _Rows:
        """The rows of each image that has a result, in the order of the list."""
        found: _Rows = {}
        headers = self._headers()
        for table, header in headers.items():
            for cells in table_rows(self.folder / table, header):
                found.setdefault(cells[0], []).append((table, cells))
        parts = self.folder / _PARTS
        for header, rows in saved_batches(parts, sorted(path.name for path in parts.glob("*.pt"))):
            check_columns(self.folder / self.table_name, header, headers[self.table_name])
            found.update(rows)
        places = {written_name(item["image"]): place for place, item in enumerate(self.items)}
        self._refuse_foreign([image for image in found if image not in places])
        return {image: found[image] for image in sorted(found, key=lambda image: places[image])}

    def _refuse_foreign(self, images: Sequence[str]) -> None:
        """Keep a resumed run from mixing its results with those of other images."""
        if images:
            remedy = "resume with the images of the run that wrote it, or choose another folder"
            raise ValueError(
                f"{self.folder / self.table_name} has results of {len(images)} images that are not in the present "
                f"list, such as {images[0]}: {remedy}"
            )

    def _left(self, batches: _Batches) -> tuple[_Batches, _Batches]:
        """Of a stopped run, the batch with the last image that has a result, and those with images that have none."""
        found = self._finished()
        # its batch is computed again first, to compare: not a short one, or the others would be cut anew
        cut = [batch for batch in batches if len(batch) < len(batches[0])]
        short = {written_name(item["image"]) for batch in cut for item in batch}
        scored = [image for image, rows in found.items() if rows[0][0] == self.table_name]
        last = ([image for image in scored if image not in short] or scored or [""])[-1]
        compared: _Batches = []
        left: _Batches = []
        for batch in batches:
            own = {written_name(item["image"]) for item in batch}
            if last in own:
                compared.append(batch)
            elif own - found.keys():
                left.append(batch)
        done = sum(written_name(item["image"]) in found for item in self.items)
        if done:
            logger.info(f"{done} of {len(self.items)} images are done already")
        return compared, left

    def _own_rows(self, rows: Iterable[tuple[str, list[str]]]) -> list[list[str]]:
        """Of the rows of an image, those of the table of results."""
        return [cells for table, cells in rows if table == self.table_name]

    def _compare(self, rows: _Rows) -> None:
        """Refuse a batch with an image that had another result; nothing of the batch is written before."""
        path = self.folder / self.table_name
        for image, computed in rows.items():
            expected, found = self.expected.pop(image, []), self._own_rows(computed)
            if expected and not found:
                raise RuntimeError(
                    f"{path}: {image} had a result and has none now: {computed[0][1][-1]}. {_RESUME_ALIKE}"
                )
            for before, now in zip(expected, found, strict=False):
                check_same_row(before, now, path)

    def _paths(self) -> list[Path]:
        """The tables, and the files and folders that belong to them; a file named like a folder is not ours."""
        derived = [self.folder / name for name in (*self.derived, _PARTS)]
        tables = [self.folder / name for name in self._headers()]
        return [*tables, *(path for path in derived if path.suffix or path.is_dir())]

    def _mark(self) -> None:
        """At the first batch: a run that fails or is refused before it leaves no trace."""
        if not self.is_marked and global_rank() == 0:
            mark_results(self.folder, (item["image"] for item in self.items), self.folders)
        self.is_marked = True

    def _join(self) -> bool:
        """Write the tables, in the order of the list, if there is any result."""
        found = self._finished()
        missing = {written_name(item["image"]) for item in self.items} - found.keys()
        if missing and world_size() > 1:
            raise RuntimeError(
                f"{len(missing)} of {len(self.items)} images have no result: all processes need the same list of "
                f"images, and all machines the same folder {self.folder}"
            )
        if not found:
            return False
        rows = [row for image in found.values() for row in image]
        for table, header in self._headers().items():
            own = [cells for name, cells in rows if name == table]
            _write_table(self.folder / table, [header, *own] if header else own)
        self.num_rejected = sum(name == _REJECTED for name, _ in rows)
        shutil.rmtree(self.folder / _PARTS, ignore_errors=True)
        return True

    def _save_complete(self, most: int) -> None:
        """Save the rows of batches whose files are complete; wait for the oldest where more files than this are not."""
        while self.waiting:
            files = self.waiting[0].files
            if not all(file.done() for file in files) and self._num_waiting() <= most:
                return
            for file in files:
                file.result()  # one that failed raises, and its batch stays the first
            self._save_rows(self.waiting.popleft().rows)

    def _num_waiting(self) -> int:
        return sum(len(batch.files) for batch in self.waiting)

    def _save_rows(self, rows: _Rows) -> None:
        """Save the rows of a batch."""
        name = sha256("\n".join(rows).encode()).hexdigest()[:16]
        save_batch((list(self.header()), rows), self.folder / _PARTS / f"{name}.pt")


def _write_table(path: Path, rows: Iterable[Sequence[str]]) -> None:
    with (
        atomic_path(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        csv.writer(file).writerows(rows)
