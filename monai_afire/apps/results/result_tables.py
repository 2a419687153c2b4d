# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the writers: tables of results and of rejected files, which grow while a network runs."""

from __future__ import annotations

import csv
import logging
import math
import shutil
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import torch
from ignite.engine import Engine, Events

from monai_afire.utils.distributed import barrier, global_rank, share_of, world_size
from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    common_folder,
    mark_results,
    refuse_existing,
    remove_leftovers,
)
from monai_afire.utils.folder_lock import folder_lock, launcher_patience

_Batches = list[Sequence[Mapping[str, Any]]]
_TOLERANCE = (
    0.01  # relative; batches of another size change the last digits, reduced precision a few
)


def written_name(source: str) -> str:
    """How a table names a file: names need not be valid text."""
    return source.encode("utf-8", "backslashreplace").decode()


def complete_images(
    path: Path, header: Sequence[str], may_be_cut: bool = True
) -> list[list[list[str]]]:
    """Rows of each image in a table; in that of a stopped run the last image may be cut, and is left out."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.reader(file))
    found, rows = rows[: bool(header)], rows[bool(header) :]
    if rows and header and found != [list(header)]:
        raise ValueError(
            f"{path} has the columns {found[0]}, not {list(header)}: resume with the settings of the run that wrote "
            "it, or start anew with resume set to false"
        )
    images = [list(image) for _, image in groupby(rows, key=lambda row: row[:1])]
    return images[:-1] if may_be_cut else images


def check_same_row(expected: Sequence[str], found: Sequence[Any], path: Path) -> None:
    """Compare a row that was computed again with the one that a stopped run had written."""
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
_PARTS = "parts"  # folder of the tables of all ranks but the main one, while a run lasts
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

    Both tables grow by whole batches, when the files of the batch are complete. So an interrupted run keeps its
    results. One run at a time may write into the folder, and one with the results of another run is refused.

    A run may have many processes (:func:`monai_afire.utils.init_process_group`), on one or many machines that share the
    folder. Each scores its share of the batches and has tables of its own, in ``parts``; at the end the main one joins
    them in the order of the list. A stopped run may be resumed by another number of processes.

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
        RuntimeError: when the run starts and another process writes into ``output_dir``; when the last rows of a
            resumed run differ; when the machines of a run do not share ``output_dir``.
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
    again: Collection[str] = frozenset()  # names of the images that a resumed run computes
    compared: Collection[str] = (
        frozenset()
    )  # of the one among them whose rows must be those of the stopped run
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
        self.batches: deque[tuple[int, list[tuple[str, list[Any]]]]] = (
            deque()
        )  # files to wait for, and rows
        self.pending: deque[Future] = deque()
        self.resources = ExitStack()
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.write)
        engine.add_event_handler(Events.COMPLETED, self.close)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.close_after_error)

    def start(self, engine: Engine) -> None:
        """Make sure that results can be written, by this run alone, and start the threads."""
        found = self._images_on_disk() if self.resume else {name: [] for name in self._headers()}
        barrier()  # nobody writes before all have read
        if global_rank() == 0:
            self.resources.enter_context(
                folder_lock(check_writable(self.folder), launcher_patience(self.resume))
            )
            if not self.resume:
                refuse_existing(*self._paths())
            for path in self._paths():
                remove_leftovers(path)
        self.expected = [
            row for image in found[self.table_name] if image[0][0] in self.compared for row in image
        ]
        self.kept = {
            name: [] if global_rank() else self._kept(images) for name, images in found.items()
        }
        self.num_rejected, self.num_saved = len(self.kept[_REJECTED]), 0
        self.rows: list[tuple[str, list[Any]]] = []  # of the batch: table and cells
        self.files: dict[str, TextIO] = {}
        self.batches.clear()
        self.pending.clear()
        self.pool = self.resources.enter_context(ThreadPoolExecutor(self.num_threads))
        if world_size() > 1:
            if global_rank() == 0:
                self._open_tables()
            barrier()  # the main one removes what a stopped run has left
            self._open_tables()

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
        """Submit the files of a batch, and write the rows of those batches whose files are complete."""
        self.collect(engine)
        self.batches.append((self.num_saved + len(self.pending), self.rows))
        self.rows = []
        self._wait_until(_WAITING)
        self._write_complete()

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
        self.rows.append((self.table_name, list(cells)))

    def reject(self, source: str, reason: str) -> None:
        """Count a file as rejected and record the reason."""
        self.num_rejected += 1
        self.rows.append((_REJECTED, [source, reason]))

    def submit(self, save: Callable[..., Any], *arguments: Any) -> None:
        """Let a thread save a file of the present batch."""
        self._open_tables()
        self.pending.append(self.pool.submit(save, *arguments))
        self._wait_until(_WAITING)

    def complete(self) -> None:  # noqa: B027  a hook: most writers have nothing but their table
        """Write files that depend on the whole table, which is on disk by now."""

    def close(self, engine: Engine) -> None:
        """Wait for the threads, write what depends on the whole table, and close the files."""
        self._wait_until(0)  # after an error of a thread close_after_error closes
        self._write_complete()
        with self.resources:  # no other run may write before complete() has
            for file in self.files.values():
                file.close()
            barrier()
            if self.files and global_rank() == 0:
                if self.resume or world_size() > 1:
                    self._join()
                self.complete()

    def close_after_error(self, engine: Engine, error: BaseException) -> None:
        """Keep what is complete, close the files and raise the error."""
        with suppress(Exception):  # of a thread: it is the one that is raised, or comes after it
            self._wait_until(0)
        self._write_complete()
        self.resources.close()
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
        return {self.table_name: self.header(), _REJECTED: ["image", "reason"]}

    def _images_on_disk(self, may_be_cut: bool = True) -> dict[str, list[list[list[str]]]]:
        """By table, the rows of each image that all processes of a run have completed, in the order of the list."""
        places = {written_name(item["image"]): place for place, item in enumerate(self.items)}
        found = {}
        for name, header in self._headers().items():
            paths = [self.folder / name, *(self.folder / _PARTS).glob(f"*_{name}")]
            images = {
                image[0][0]: image
                for path in paths
                for image in complete_images(path, header, may_be_cut)
            }
            self._refuse_foreign([image for image in images if image not in places], name)
            found[name] = sorted(images.values(), key=lambda image: places[image[0][0]])
        return found

    def _refuse_foreign(self, images: Sequence[str], name: str) -> None:
        """Keep a resumed run from mixing its results with those of other images."""
        if images:
            remedy = "resume with the images of the run that wrote it, or choose another folder"
            raise ValueError(
                f"{self.folder / name} has results of {len(images)} images that are not in the present list, such "
                f"as {images[0]}: {remedy}"
            )

    def _left(self, batches: _Batches) -> tuple[_Batches, _Batches]:
        """Of a stopped run, the batch with the last complete image, and those with images that have no result."""
        found = self._images_on_disk()
        done = {image[0][0] for images in found.values() for image in images[:-1]}
        # a complete image is computed again first, to compare: not of a short batch, or the others would be cut anew
        cut = [batch for batch in batches if len(batch) < len(batches[0])]
        short = {written_name(item["image"]) for batch in cut for item in batch}
        names = [image[0][0] for image in found[self.table_name]]
        self.compared = set(([name for name in names if name not in short] or names)[-1:])
        compared: _Batches = []
        left: _Batches = []
        for batch in batches:
            own = {written_name(item["image"]) for item in batch}
            if own & self.compared:
                compared.append(batch)
            elif own - done:
                left.append(batch)
        again = [item for batch in (*compared, *left) for item in batch]
        self.again = {written_name(item["image"]) for item in again}
        logger.info(f"{len(self.items) - len(again)} of {len(self.items)} images are done already")
        return compared, left

    def _kept(self, images: list[list[list[str]]]) -> list[list[list[str]]]:
        """Those images of a stopped run that are not computed again; the last one always is."""
        return [image for image in images[:-1] if image[0][0] not in self.again]

    def _paths(self) -> list[Path]:
        """The tables, and the files and folders that belong to them; a file named like a folder is not ours."""
        derived = [self.folder / name for name in (*self.derived, _PARTS)]
        tables = [self.folder / name for name in self._headers()]
        return [*tables, *(path for path in derived if path.suffix or path.is_dir())]

    def _open_tables(self) -> None:
        """At the first row or file: a run that fails before it leaves none."""
        if self.files:
            return
        rank = global_rank()
        if not rank:
            mark_results(self.folder, (item["image"] for item in self.items), self.folders)
        for name, header in self._headers().items():
            path = self.folder / _PARTS / f"{rank}_{name}" if rank else self.folder / name
            _write_table(path, header, self.kept[name], flush=self.resume)
            self.files[name] = self.resources.enter_context(
                # names of files need not be valid text
                path.open("a", newline="", encoding="utf-8", errors="backslashreplace")
            )
        if not rank:
            shutil.rmtree(
                self.folder / _PARTS, ignore_errors=True
            )  # of a stopped run: their rows are kept

    def _join(self) -> None:
        """Bring the rows of all processes into the order of the list."""
        found = self._images_on_disk(may_be_cut=False)
        read = {image[0][0] for images in found.values() for image in images}
        missing = {written_name(item["image"]) for item in self.items} - read
        if missing and world_size() > 1:
            raise RuntimeError(
                f"{len(missing)} of {len(self.items)} images have no result: all processes need the same list of "
                f"images, and all machines the same folder {self.folder}"
            )
        for name, header in self._headers().items():
            _write_table(self.folder / name, header, found[name])
        self.num_rejected = len(found[_REJECTED])
        shutil.rmtree(self.folder / _PARTS, ignore_errors=True)

    def _write_complete(self) -> None:
        while self.batches and self.batches[0][0] <= self.num_saved:
            for name, cells in self.batches.popleft()[1]:
                if (
                    name == self.table_name
                    and self.expected
                    and written_name(cells[0]) == self.expected[0][0]
                ):
                    check_same_row(self.expected.pop(0), cells, self.folder / name)
                self._open_tables()
                csv.writer(self.files[name]).writerow(cells)
            for file in self.files.values():
                file.flush()

    def _wait_until(self, remaining: int) -> None:
        """Wait for the oldest files, and raise their errors, so that neither memory nor errors pile up."""
        while self.pending and (len(self.pending) > remaining or self.pending[0].done()):
            self.pending[
                0
            ].result()  # one that failed stays the first: nothing behind it counts as saved
            self.pending.popleft()
            self.num_saved += 1


def _write_table(
    path: Path, header: Sequence[str], images: Iterable[list[list[str]]], flush: bool = True
) -> None:
    with (
        atomic_path(path, flush) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        csv.writer(file).writerows([header] if header else [])
        csv.writer(file).writerows(row for image in images for row in image)
