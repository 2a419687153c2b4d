# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``monai-afire watch IN OUT``: score the radiographs that arrive in a folder, each once."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from monai.bundle import ConfigWorkflow

from monai_afire.apps.results.result_tables import written_name
from monai_afire.apps.runs.options.declarations import OPTIONS
from monai_afire.apps.runs.process_end import show_cause_last
from monai_afire.apps.runs.weights import run_weights
from monai_afire.apps.worklist.watched_normals import WatchedNormals
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.handlers.stop_request import StoppedBySignal
from monai_afire.transforms.radiograph_files import MISSING, UNOPENED
from monai_afire.utils.files import check_writable, write_text
from monai_afire.utils.folder_lock import LOCK_FILE, folder_lock
from monai_afire_cli.bundles.bundle import find_bundle
from monai_afire_cli.options.words import literal
from monai_afire_cli.process.pipes import until_unread
from monai_afire_cli.subcommands.parsers import watch_parser

__all__ = ["main", "watch_folder"]

_PLAN = "datalist.json"
_MOST_TRIES = 3  # of a file that is there and cannot be opened
_MOST = 256  # files in a batch: of many files, the first results are there soon

Arrival = tuple[str, int, int]
"""Name of a file in the folder, its size in bytes, and when it was changed, in nanoseconds."""


def watch_folder(
    folder: str | os.PathLike,
    output_dir: str | os.PathLike,
    interval: float = 10.0,
    calibrate: str | os.PathLike | None = None,
    calibrate_weeks: float | None = None,
    weights_of: str | None = None,
    **overrides: Any,
) -> None:
    """
    Score the radiographs that arrive in a folder, each once, until an exception, such as ``KeyboardInterrupt``.

    A file is scored when neither its size nor its time changed between two looks; one that changes later has arrived
    anew. A batch is named first, in ``.batch_<number>/datalist.json``, then scored as by ``inference.json`` with
    ``resume``, then shown as ``batch_<number>``. So a process that is killed, at whatever point, loses no file, and the
    next one scores none again. Files in the folder are only read. While a folder is away, such as a share without its
    network, the watch waits; files that could not be opened then are scored once it is back.

    Args:
        folder: where files arrive, in subfolders, too.
        output_dir: where batches are written; without a batch's folder, its files are scored again.
        interval: seconds between two looks.
        calibrate: folder or datalist of normal images, or a file that a run has written, see
            :class:`monai_afire.apps.worklist.RunNormals`; it is made once, as ``normals.safetensors`` in the output
            folder.
        calibrate_weeks: take the images of the folder ``calibrate`` that are at most so many weeks old, anew each day.
        weights_of: run that trained the detector, see :func:`monai_afire.apps.runs.run_weights`; it is looked up once.
        overrides: settings of ``inference.json``.

    Raises:
        FileNotFoundError: when there is no such run.
        DatalistError: when there is no such folder or device, or the output folder lies in the folder.
        RuntimeError: when another process watches for the same output folder.
    """
    if Path(output_dir).resolve().is_relative_to(Path(folder).resolve()):
        raise DatalistError(
            f"{output_dir} lies in {folder}, where results would count as arrivals: choose another"
        )
    if not Path(folder).is_dir():
        raise DatalistError(f"{folder}: no such folder: check the name, or connect its disk")
    if "device" in overrides:
        _check_device(overrides["device"])
    if weights_of is not None:
        overrides["ckpt_path"] = run_weights(weights_of, "afire", "anomaly detector")
    out = check_writable(output_dir)
    with folder_lock(out):
        normals = WatchedNormals(out, calibrate, calibrate_weeks)
        _Watch(Path(folder), out, interval, overrides, normals).run()


def _check_device(name: str) -> None:
    """Refuse what this machine does not have now, rather than when the first file arrives."""
    try:
        OPTIONS["device"].read(name)
    except ValueError as error:
        raise DatalistError(f"--device: {error}") from error


class _Watch:
    """What a watch knows: the arrivals that were scored, and how often those that could not be opened were tried."""

    def __init__(
        self,
        folder: Path,
        out: Path,
        interval: float,
        overrides: dict[str, Any],
        normals: WatchedNormals,
    ) -> None:
        self.folder, self.out, self.interval, self.overrides = folder, out, interval, overrides
        lock = out / LOCK_FILE
        self.lock = lock if lock.exists() else None  # some systems have none
        self.normals = normals
        self.known: set[Arrival] = set()
        self.tries: Counter[Arrival] = Counter()

    def run(self) -> None:
        """Complete what was begun, then look again and again."""
        for plan in sorted(self.out.glob(f".batch_*/{_PLAN}")):
            self._complete(plan.parent)
        for plan in self.out.glob(f"batch_*/{_PLAN}"):
            self.known |= _scored(plan.parent)
        before: set[Arrival] = set()
        while True:
            now = self._look() - self.known
            if settled := sorted(now & before)[:_MOST]:
                self._begin(settled)
                before -= set(settled)  # one that could not be opened is tried again after a pause
            else:
                before = now
                time.sleep(self.interval)

    def _look(self) -> set[Arrival]:
        """The radiographs in the folder, once it is there."""
        while True:
            self._wait()
            try:
                return _arrivals(self.folder)
            except (DatalistError, OSError):  # it went away meanwhile
                if self.folder.is_dir():
                    raise

    def _begin(self, arrivals: Collection[Arrival]) -> None:
        """Score a new batch, unless the folder of results went away before it was named."""
        self._wait()
        try:
            batch = _plan(self.out, self.folder, arrivals)
        except OSError:
            if self._away() is None:
                raise
            return
        self._score(batch)

    def _away(self) -> Path | None:
        """A folder that is away, such as a share without its network; None if both are there."""
        if not self.folder.is_dir():
            return self.folder
        # an empty folder in the place of a share has no lock
        is_there = self.out.is_dir() and (self.lock is None or self.lock.exists())
        return None if is_there else self.out

    def _wait(self) -> None:
        """Wait while a folder is away, and say so once."""
        while (away := self._away()) is not None:
            print(f"{away} is away: waiting", flush=True)
            while self._away() == away:
                time.sleep(self.interval)
            print(f"{away} is back", flush=True)

    def _complete(self, batch: Path) -> None:
        """Score what a stopped watch has left of a batch."""
        try:
            self._score(batch)
        except (RuntimeError, ValueError) as error:
            remedy = "watch with the settings it was begun with, or delete this folder, and its files are scored anew"
            raise DatalistError(f"{batch} cannot be completed ({error}): {remedy}") from error

    def _score(self, batch: Path) -> None:
        """Score a batch, again where files went away meanwhile; those that are gone are no arrivals any more."""
        shown = None
        while shown is None:
            try:
                if not _leave_out_missing(batch, self._wait):
                    shutil.rmtree(batch)
                    return
                shown = _score(batch, self.folder, {**self.overrides, **self.normals.option()})
                self.normals.keep(shown)
                found, planned = _scored(shown), _planned(shown)
            except Exception:
                shown = None
                if self._away() is None and not _missing(batch):
                    raise
        for arrival in planned - found:
            self.tries[arrival] += 1
        self.known |= found | {
            arrival for arrival, count in self.tries.items() if count >= _MOST_TRIES
        }


def _items(batch: Path) -> list[dict[str, Any]]:
    """Files of a batch, each with its arrival."""
    return json.loads((batch / _PLAN).read_text())["test"]


def _planned(batch: Path) -> set[Arrival]:
    """Arrivals that a batch was begun for."""
    return {tuple(item["arrival"]) for item in _items(batch)}


def _scored(batch: Path) -> set[Arrival]:
    """Arrivals of a complete batch, without those that could not be opened: they are tried again."""
    with (batch / "rejected.csv").open(newline="", encoding="utf-8") as file:
        reasons = {row["image"]: row["reason"] for row in csv.DictReader(file)}
    unopened = {
        name
        for name, reason in reasons.items()
        if any(f": {text}" in reason for text in (MISSING, UNOPENED))
    }
    return {
        tuple(item["arrival"])
        for item in _items(batch)
        if written_name(item["image"]) not in unopened
    }


def _missing(batch: Path) -> list[str]:
    """Files of a batch that are not there."""
    return [item["image"] for item in _items(batch) if not os.path.exists(item["image"])]


def _leave_out_missing(batch: Path, wait: Callable[[], None]) -> bool:
    """Take files that were taken away out of a batch; whether any is left."""
    wait()
    missing = set(_missing(batch))
    items = _items(batch)
    if missing:
        wait()  # all of them are missing when it is the folder that went away
        items = [
            item for item in items if item["image"] not in missing or os.path.exists(item["image"])
        ]
        write_text(batch / _PLAN, json.dumps({"test": items}, indent=1))
    return bool(items)


def _arrivals(folder: Path) -> set[Arrival]:
    """The radiographs in the folder now."""
    found = set()
    for name in scan_radiographs(folder):
        with suppress(FileNotFoundError):  # taken away meanwhile
            status = (folder / name).stat()
            found.add((name, status.st_size, status.st_mtime_ns))
    return found


def _plan(out: Path, folder: Path, arrivals: Collection[Arrival]) -> Path:
    """Name the files of a new batch, all or none."""
    numbers = [int(plan.parent.name.rpartition("_")[2]) for plan in out.glob(f"*batch_*/{_PLAN}")]
    batch = out / f".batch_{max(numbers, default=0) + 1:06d}"
    items = [
        {"image": os.path.abspath(folder / arrival[0]), "arrival": arrival} for arrival in arrivals
    ]
    write_text(batch / _PLAN, json.dumps({"test": items}, indent=1))
    return batch


def _score(batch: Path, folder: Path, overrides: dict[str, Any]) -> Path:
    """Score what is left of a batch, and show it under its name, which is returned."""
    bundle = find_bundle("afire")
    # a remedy names the folder that the user gave, rather than the list of a batch
    named = {"used_items::dataset_dir": literal(str(folder)), "used_items::datalist": "$None"}
    workflow = ConfigWorkflow(
        workflow_type="inference",
        config_file=[str(path) for path in bundle.config_files(["inference"])],
        bundle_root=literal(str(bundle.folder)),
        datalist=literal(str(batch / _PLAN)),
        output_dir=literal(str(batch)),
        resume=True,
        handlers=["@set_specificity", "@writer"],  # without those that address a person
        run=["$@evaluator.run()", "$@writer.print_summary()"],  # rejected files end no watch
        **named,
        **literal(overrides),
    )
    workflow.initialize()
    workflow.run()
    workflow.finalize()
    shown = batch.rename(batch.with_name(batch.name.removeprefix(".")))
    print(shown, flush=True)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = watch_parser().parse_args(arguments)
    show_cause_last()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        watch_folder(**{name: value for name, value in vars(options).items() if value is not None})
    except (KeyboardInterrupt, StoppedBySignal):
        print("stopped; the same command goes on", flush=True)
    except BrokenPipeError:  # see until_unread
        raise
    except (DatalistError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(until_unread(main))
