# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the writers: tables of results, and the record that a stopped run goes on with."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.utils import CommonKeys

from monai_afire.apps.pages import render_page
from monai_afire.data.datalist.scanning import mark_results
from monai_afire.networks.weights.description import tensor_digest
from monai_afire.transforms.radiograph_files import MISSING, UNOPENED
from monai_afire.utils.distributed import barrier, by_main_rank, global_rank, share_of, world_size
from monai_afire.utils.files import (
    atomic_path,
    check_writable,
    common_folder,
    refuse_existing,
    remove_leftovers,
    write_text,
)
from monai_afire.utils.precision import at_least_float32

EXIT_CODE_REJECTED = 2
RECORD = "resume.jsonl"
_PARTS = "resume.rank*.jsonl"  # of the other processes, until a run ends
_REJECTED, _REJECTED_HEADER = "rejected.csv", ("image", "reason")
_NAN = "the network's output is NaN or infinite: check the intensities of the image and the weights"
_CHANGED = "the file was changed while the run went on: score it by --resume True"

FileState = list[int] | None
"""Size in bytes and time of the last change in nanoseconds; None for a file that is not there."""


def file_state(path: str | os.PathLike) -> FileState:
    """By what a file is known to have the content that it had."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def written_name(source: str) -> str:
    """How a table names a file: names need not be valid text."""
    return source.encode("utf-8", "backslashreplace").decode()


def read_record(folder: Path) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """
    What a run has recorded: its settings, and by file the state, the table and the rows in it; both empty for none.

    The first line of a record has the settings, each further one the files of a batch. A line without its end, which a
    killed process leaves, is dropped.
    """
    settings: dict[str, str] = {}
    files: dict[str, dict[str, Any]] = {}
    for path in (folder / RECORD, *sorted(folder.glob(_PARTS))):
        if not path.is_file():
            continue
        with path.open(encoding="utf-8") as lines:
            if path.name == RECORD:
                settings = json.loads(next(lines, "{}"))
            for line in lines:
                files |= json.loads(line) if line.endswith("\n") else {}
    return settings, files


class ResultTables(ABC):
    """
    Base of the handlers that write the results of each image while a network runs.

    A subclass names the columns in :meth:`header` and adds rows in :meth:`add`. The rows of a batch are appended to
    ``resume.jsonl`` when its further files, which threads write, are complete; at the end they become the table, in
    the order of the list, and ``rejected.csv``, the files without a result. A resumed run scores the files that have no
    row, and those whose size or time has changed since. Rows of files that are not in its list stay. Weights or
    settings that would change a number are refused. Of several processes, each scores its share of the batches.

    Attach it to an evaluator. Its batches need "index" (the number in ``items``) and may have "rejected" (per image a
    reason, empty for none), see :class:`monai_afire.transforms.LoadRadiographd`.

    Attributes:
        items: the data set's items, for the names of the files; each subclass has them as an argument.
        output_dir: where to write, likewise; results of another run in it are refused.
        table_name: file name of the table.
        resume: go on with the run in ``output_dir``, if there is one.
        num_threads: threads that write the submitted files.
        derived: names of files and folders that belong to the table.
        folders: names of the folders that this run writes a file of each image to.
        root: folder that results are named relative to; "" for that which all files of the first run have in common.

    Raises:
        ValueError: when a resumed run has other weights or settings.
        RuntimeError: when images have no result, as on machines that do not share ``output_dir``.
    """

    items: Sequence[Mapping[str, Any]]
    output_dir: str
    table_name: str
    resume = False
    num_threads = 2
    num_rejected = 0
    derived: Sequence[str] = ()
    folders: Sequence[str] = ()
    root = ""

    @property
    def folder(self) -> Path:
        """Path of ``output_dir``."""
        return Path(self.output_dir)

    @property
    def sources(self) -> dict[str, str]:
        """Name in the table -> file."""
        return {written_name(item["image"]): item["image"] for item in self.items}

    @abstractmethod
    def header(self) -> Sequence[str]:
        """Titles of the table's columns; none for a table that begins with its first row."""

    def add(self, source: str, output: torch.Tensor, batch: Mapping[str, Any], row: int) -> None:
        """Add the rows of an image, and submit its files: ``output`` is row ``row`` of the network's, on the CPU."""
        raise NotImplementedError

    def settings(self) -> Mapping[str, Any]:
        """What a number depends on besides the network, its inputs and the names of the columns."""
        return {}

    def complete(self, described: Mapping[str, Any]) -> None:  # noqa: B027  most have nothing but their table
        """Write what depends on the whole table, which is on disk: ``described`` has what rows were added with."""

    def remaining(self, batch_size: int = 1) -> Sequence[Mapping[str, Any]]:
        """
        The items to give to this process's network: its share of all, or of those that a stopped run has left.

        Batches of the loader are shared and recorded as a whole: an image of the same list is always in the same batch,
        and its result does not depend on stops and on the number of processes, not even in the last digit.
        """
        left = [item for item in self.items if written_name(item["image"]) in self.left]
        starts = range(0, len(left), batch_size)
        own = share_of([left[start : start + batch_size] for start in starts])
        if not own:  # an engine cannot run on nothing: of this item there will be no row
            self.left = {}
            return self.items[:1]
        return [item for batch in own for item in batch]

    @cached_property
    def left(self) -> dict[str, FileState]:
        """The files that have no row, or another content since, with their states before they are read."""
        return by_main_rank(self._left)

    def _left(self) -> dict[str, FileState]:
        _, done = read_record(self.folder) if self.resume else ({}, {})
        states = {name: file_state(source) for name, source in self.sources.items()}
        return {name: state for name, state in states.items() if not _is_of(state, done.get(name))}

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.write)
        engine.add_event_handler(Events.COMPLETED, self.close)

    def start(self, engine: Engine) -> None:
        """Refuse a folder of other results, and begin the record, or go on with it."""
        self.rows: dict[str, dict[str, Any]] = {}
        self.files: list[tuple[str, Future]] = []
        self.left  # noqa: B018  known before the record is written anew
        self.root = by_main_rank(self._begin, self._made_with(engine))
        self.pool = ThreadPoolExecutor(self.num_threads)

    def write(self, engine: Engine) -> None:
        """Record the batch before, whose files threads have had time for, and add the rows of this one."""
        self._flush()
        self.collect(engine)

    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch, of those images that :meth:`accepted` gives."""
        outputs = engine.state.output[CommonKeys.PRED].as_subclass(torch.Tensor)  # type: ignore[index]
        outputs = at_least_float32(outputs).detach().cpu()
        batch: Any = engine.state.batch
        for row, source in self.accepted(
            batch, outputs.reshape(len(outputs), -1).isfinite().all(1)
        ):
            self.add(source, outputs[row], batch, row)

    def accepted(
        self, batch: Mapping[str, Any], is_number: torch.Tensor
    ) -> Iterator[tuple[int, str]]:
        """
        Row in the batch and file of the images that have a result; the others go to ``rejected.csv``.

        ``is_number`` is ``(B,)`` bool, False where the network's output is NaN or infinite.
        """
        indices = batch["index"].tolist()
        reasons = batch.get("rejected", [""] * len(indices))
        for row, (index, reason) in enumerate(zip(indices, reasons, strict=True)):
            source = self.items[index]["image"]
            if written_name(source) not in self.left:
                continue
            if self._has_changed(source):
                reason = _CHANGED
            elif not reason and not is_number[row]:
                reason = _NAN
            if reason:
                self.reject(source, reason)
            else:
                yield row, source

    def add_row(self, cells: Iterable[Any], described: Any = None) -> None:
        """Add a row to the table, of which the first cell is the file; ``described`` is for :meth:`complete`."""
        texts = ["" if cell is None else written_name(str(cell)) for cell in cells]
        entry = self._entry(texts[0], self.table_name)
        entry["rows"].append(texts)
        entry["described"] = described

    def reject(self, source: str, reason: str) -> None:
        """Record why a file has no result."""
        name = written_name(source)
        entry = self._entry(name, _REJECTED)
        entry["rows"].append([name, reason])
        if any(f": {text}" in reason for text in (MISSING, UNOPENED)):
            entry["state"] = None  # not read: a resumed run tries again

    def submit(self, source: str, save: Callable[..., Path | None], *arguments: Any) -> None:
        """Let a thread save a file of an image: a function that returns the path, or None where it saves none."""
        saved = self.pool.submit(self._save, source, save, *arguments)
        self.files.append((written_name(source), saved))

    def close(self, engine: Engine) -> None:
        """Write the tables, in the order of the list."""
        self._flush()
        self.pool.shutdown()
        barrier()
        if global_rank() == 0:
            self._write_tables()

    def write_page(self, name: str, title: str, sentence: str, cards: Sequence[Any]) -> None:
        """Write a page with cards of images: "name", URL of the "picture", "lines" and whether each stands out."""
        values = {"title": title, "sentence": sentence, "cards": cards}
        page = render_page("monai_afire.apps.results", "results.html", **values)
        write_text(self.folder / name, page)

    def exit_if_rejected(self) -> None:
        """End the process with exit code 2 if files were rejected, after saying so; for the command line."""
        if self.num_rejected and global_rank() == 0:
            found = f"{self.num_rejected} of {self.num_files} files were rejected"
            print(f"{found}: see {self.folder / _REJECTED}", file=sys.stderr)
            if world_size() == 1:  # torchrun would start all processes again
                raise SystemExit(EXIT_CODE_REJECTED)

    def _made_with(self, engine: Engine) -> dict[str, str]:
        """Digests of what numbers depend on: not of device, processes and batch size."""
        network = getattr(engine, "network", None)
        state = {} if network is None else network.state_dict()
        data = getattr(engine.state.dataloader, "dataset", None)
        used = [getattr(data, "transform", None), getattr(engine, "inferer", None)]
        used += [list(self.header()), self.settings()]
        text = json.dumps(used, default=_attributes, sort_keys=True, skipkeys=True)
        tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        digest = hashlib.sha256(text.encode()).hexdigest()
        return {"weights": tensor_digest(tensors), "settings": f"sha256:{digest}"}

    def _begin(self, made_with: Mapping[str, str]) -> str:
        """Make sure that results can be written and belong together; returns the folder that they are named by."""
        check_writable(self.folder)
        settings, files = read_record(self.folder)
        others = [part for part in made_with if files and settings[part] != made_with[part]]
        if not self.resume or not settings:
            names = [RECORD] * bool(files) + [self.table_name, _REJECTED, *self.derived]
            refuse_existing(*(self.folder / name for name in names))
        elif others:
            raise ValueError(
                f"{self.folder} has results of other {' and '.join(others)}: resume with those of the run that wrote "
                "them, or start anew in another folder, without resume"
            )
        sources = [item["image"] for item in self.items]
        root = (settings["root"] if files else self.root) or common_folder(sources)
        for name in files.keys() & self.left.keys():
            for saved in files.pop(name)["files"]:  # of the former content
                (self.folder / saved).unlink(missing_ok=True)
        remove_leftovers(self.folder)
        self._write_record({**made_with, "root": root}, files)
        mark_results(self.folder, sources, self.folders)
        return root

    def _entry(self, name: str, table: str) -> dict[str, Any]:
        new = {"state": self.left[name], "table": table, "rows": [], "files": []}
        return self.rows.setdefault(name, new)

    def _has_changed(self, source: str) -> bool:
        """Whether a file has another content than when the run began; one that has gone is not known to."""
        return file_state(source) not in (self.left[written_name(source)], None)

    def _save(self, source: str, save: Callable[..., Path | None], *arguments: Any) -> Path | None:
        path = save(*arguments)
        if path is None or not self._has_changed(source):
            return path
        path.unlink(missing_ok=True)  # its header may be that of another patient
        return None

    def _flush(self) -> None:
        """Append the rows of a batch to the record of this process, when its files are complete."""
        rows, files, self.rows, self.files = self.rows, self.files, {}, []
        for name, file in files:
            if (path := file.result()) is not None:
                rows[name]["files"].append(os.path.relpath(path, self.folder))
        if rows:
            name = _PARTS.replace("*", str(global_rank())) if global_rank() else RECORD
            with (self.folder / name).open("a", encoding="utf-8") as record:
                record.write(json.dumps(rows) + "\n")

    def _write_tables(self) -> None:
        """Bring the records of all processes together, and make the tables of them."""
        settings, files = read_record(self.folder)
        sources = self.sources
        if missing := [name for name in sources if name not in files]:
            raise RuntimeError(
                f"{len(missing)} of {len(sources)} images have no result, such as {missing[0]}: all processes need the "
                f"same list of images, and all machines the same folder {self.folder}"
            )
        files = {name: files[name] for name in (*sources, *files)}  # those of other lists last
        self._write_record(settings, files)
        shown = {
            name: _unless_changed(entry, name, sources.get(name, name))
            for name, entry in files.items()
        }
        for table, header in ((self.table_name, self.header()), (_REJECTED, _REJECTED_HEADER)):
            own = [entry["rows"] for entry in shown.values() if entry["table"] == table]
            _write_csv(self.folder / table, [*([header] if header else []), *chain(*own)])
        self.num_files = len(shown)
        self.num_rejected = sum(entry["table"] == _REJECTED for entry in shown.values())
        self.complete({name: entry.get("described") for name, entry in shown.items()})

    def _write_record(self, settings: Mapping[str, str], files: Mapping[str, Any]) -> None:
        """Write the record of all processes, whole or not at all; those of the others are in it."""
        lines = [settings, *({name: entry} for name, entry in files.items())]
        with (
            atomic_path(self.folder / RECORD) as path,
            path.open("w", encoding="utf-8") as record,
        ):
            record.writelines(json.dumps(line) + "\n" for line in lines)
        for part in self.folder.glob(_PARTS):
            part.unlink()


def _is_of(state: FileState, entry: Mapping[str, Any] | None) -> bool:
    """Whether a record is of a file as it is now; a file that is away, such as on a share, has not changed."""
    return entry is not None and state in (entry["state"], None)


def _unless_changed(entry: Mapping[str, Any], name: str, source: str) -> Mapping[str, Any]:
    """The record of a file; after a change that of a rejected one: its name stands for another image now."""
    if entry["table"] == _REJECTED or _is_of(file_state(source), entry):
        return entry
    return {"table": _REJECTED, "rows": [[name, _CHANGED]]}


def _attributes(value: Any) -> Any:
    """What JSON writes in the place of an object, such as a transform: its class and its settings."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return [type(value).__qualname__, getattr(value, "__qualname__", "")]
    return [type(value).__qualname__, vars(value)]


def _write_csv(path: Path, rows: Iterable[Sequence[str]]) -> None:
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
