# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One run, one folder: ``runs/<bundle>/<name or time>/`` below the current folder, and which of them to go on from."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from monai_afire.apps.runs.call import config_files, given_words
from monai_afire.apps.runs.door import option_text
from monai_afire.utils.distributed import by_main_rank, has_process_group, is_launched
from monai_afire.utils.files import check_writable
from monai_afire_cli.runs.run_records import (
    LATEST,
    RECORD,
    begin_run,
    is_finished,
    newest_first,
    newest_run,
    other_step,
    point_latest,
    read_record,
    run_folders,
    runs_of,
    taken_name,
    wrong_name,
)

__all__ = ["run_folder", "run_name", "stopped_run", "used_folder"]

logger = logging.getLogger(__name__)

_BEFORE_A_RUN = re.compile(r"run\.json|config_\w+\.json")  # the latter by MONAI's tracking
# options that say how a run computes, and for how long, rather than what
_MAY_CHANGE = {
    *("resume", "name", "dataset_dir", "datalist", "epochs"),
    *("device", "num_workers", "cache", "cache_dir", "logging_file"),
}
_DONE_ONCE = ("evaluation", "analysis", "fit")  # steps whose configs call run_once
_MOST_LISTED = 10
# folders that this process has made, by bundle, step, name and images: clients of a federation have each their own
_made: dict[tuple[str | None, ...], Path] = {}


def run_folder(
    bundle: str,
    step: str,
    name: str | None = None,
    resume: bool = False,
    images: Sequence[str | None] = (),
) -> str:
    """
    The folder of a run, made for it alone, or that of the stopped run to resume.

    ``runs/<bundle>/latest`` leads to it: a link or, where there are none, a text file with its name. Of several
    processes the main one decides.

    Args:
        bundle: folder or name of the bundle.
        step: what the run does, such as "train"; a run is resumed by the same step alone.
        name: of the run; None for the time.
        resume: go on with the run of this name or, without a name, see :func:`stopped_run`. Where there is none, the
            run is a new one.
        images: what names the images, such as ``dataset_dir`` and ``datalist``, None for each that is not given.

    Returns:
        Its path, relative to the current folder.

    Raises:
        FileExistsError: when a run has this name.
        OSError: when the folder cannot be made.
        RuntimeError: in one of several processes that have not joined yet.
        ValueError: for a name that is no plain name, when the run to resume is of another step, and when all runs to
            resume are of other images or options.

    Example:
        >>> import pytest, tempfile
        >>> with pytest.MonkeyPatch.context() as patch:
        ...     patch.chdir(tempfile.mkdtemp())
        ...     Path(run_folder("afire", "train", "hospital_a")).as_posix()
        ...     Path(run_folder("afire", "train", "hospital_a", resume=True)).as_posix()
        'runs/afire/hospital_a'
        'runs/afire/hospital_a'
    """
    if is_launched() and not has_process_group():
        remedy = "start a step for one process without torchrun, or give the folder (--output_dir)"
        raise RuntimeError(f"the processes have not joined, so each would have a run: {remedy}")
    plain = None if name is None else str(name)
    return by_main_rank(_run_folder, bundle, step, plain, _is_asked_for(resume), images)


def _is_asked_for(resume: bool | str) -> bool:
    """MONAI's tracking evaluates a config before the texts of the command line are read."""
    return str(resume).lower() == "true"


def stopped_run(
    bundle: str, step: str, name: str | None = None, images: Sequence[str | None] = ()
) -> Path | None:
    """
    The run to go on with by ``--resume True``.

    Args:
        bundle: folder or name of the bundle.
        step: what the run does.
        name: of the run; None for the latest one of this step that was started with the same images and options as
            this command and is not complete. If all are, the latest training, which may get more ``epochs``, but no
            other step. ``epochs`` and what only the machine has to do with may differ.
        images: see :func:`run_folder`.

    Returns:
        Its folder; None where no run can be resumed.

    Raises:
        ValueError: when the run of this name is of another step, when it is complete and its results would not be those
            of this command, or no run fits; the message lists those that there are.

    Example:
        >>> stopped_run("no_such_bundle", "train") is None
        True
    """
    if name is None:
        return _fitting_run(runs_of(bundle), step, images)
    folder = runs_of(bundle) / name
    if not folder.exists():
        return None
    if problem := other_step(folder, step):
        raise ValueError(problem)
    record = read_record(folder)
    if step in _DONE_ONCE and is_finished(folder) and not _fits(record, images):
        found = f"{folder} has results of other images or options than this command"
        raise ValueError(f"{found}{_described(record)}: choose another --name")
    return folder


def run_name(output_dir: str | os.PathLike) -> str | None:
    """
    Name of the run whose folder this is, which ``--name`` takes; None for another folder.

    Example:
        >>> run_name("no/such/folder") is None
        True
    """
    folder = Path(output_dir)
    return folder.name if read_record(folder) else None


def used_folder() -> Path | None:
    """
    The folder that this process has made for a run, once something is in it: another run of its name is refused.

    Returns:
        None while it is empty, for an empty one is removed at the end, and for a run that goes on in its folder.

    Example:
        >>> from unittest.mock import patch
        >>> with patch.dict(_made, clear=True):  # as in a process that has made no run
        ...     print(used_folder())
        None
    """
    used = [folder for folder in _made.values() if folder.is_dir() and not _is_unused(folder)]
    return used[-1] if used else None


def _run_folder(
    bundle: str, step: str, name: str | None, resume: bool, images: Sequence[str | None]
) -> str:
    parent = runs_of(bundle)
    if name is not None and (problem := wrong_name(name)):
        raise ValueError(f"--name {problem}")
    run = (os.path.abspath(bundle), step, name, *_absolute(images))
    folder = _unused(run)
    if folder is None and resume:
        folder = stopped_run(bundle, step, name, images)
        if folder is not None:
            logger.info(f"going on with the run {folder}{_described(read_record(folder))}")
    if folder is None:
        leave_no_empty_folder(parent)
        check_writable(parent, option="--output_dir")
        if resume:
            which = f"stopped run ({step})" if name is None else f"run {name}"
            logger.warning(f"--resume True: no {which} in {parent.absolute()}: this is a new one")
        folder = _named(parent / name) if name else _timed(parent)
        _made[run] = folder
        atexit.register(_leave_if_unused, folder.absolute())
        begin_run(folder, {"step": step, "images": _absolute(images), "options": _options()})
    return str(folder)


def _fitting_run(parent: Path, step: str, images: Sequence[str | None]) -> Path | None:
    """The newest run of a step with these images and this command's options; of trainings one that is not complete."""
    folders = [
        folder
        for folder in run_folders(parent)
        if other_step(folder, step) is None and _can_go_on(folder)
    ]
    fitting = [folder for folder in folders if _fits(read_record(folder), images)]
    unfinished = [folder for folder in fitting if not is_finished(folder)]
    if folders and not fitting:
        raise ValueError(_no_run_fits(step, newest_first(folders)))
    newest = newest_first(unfinished or fitting)
    return newest[0] if newest else None


def _fits(record: Mapping[str, Any], images: Sequence[str | None]) -> bool:
    then, now = record.get("options"), _options()
    # a Python program has no options that could be compared
    are_same = None in (then, now) or then == now
    return are_same and record.get("images") == _absolute(images)


def _no_run_fits(step: str, folders: Sequence[Path]) -> str:
    lines = [
        f"\n  {option_text('name', folder.name)}{_described(read_record(folder))}"
        for folder in folders[:_MOST_LISTED]
    ]
    more = len(folders) - len(lines)
    rest = f"\n  and {more} older ones" if more > 0 else ""
    return (
        f"--resume True: no run ({step}) in {folders[0].parent} has the images and options of this command. Give those "
        f"of the stopped run, or its name; leave out --resume for a new run. There are:{''.join(lines)}{rest}"
    )


def _described(record: Mapping[str, Any]) -> str:
    """What a person knows a run by, in brackets."""
    images = [str(each) for each in record.get("images", ()) if each]
    state = "complete" if record.get("finished") else "not complete"
    started = str(record.get("started", ""))[:19].replace("T", " ")
    return f" ({state}, started {started} UTC, images: {' and '.join(images) or 'drawn phantoms'})"


def _absolute(images: Sequence[str | None]) -> list[str | None]:
    return [os.path.abspath(os.path.expanduser(path)) if path else None for path in images]


def _options() -> dict[str, Any] | None:
    """Options of this command that make a run what it is; None where MONAI's command did not start the process."""
    words = given_words(sys.argv)
    if not words:
        return None
    options: dict[str, Any] = {
        name: word for name, word in words.items() if name not in _MAY_CHANGE
    }
    files = config_files(words.get("config_file"))
    return {**options, "config_file": [os.path.abspath(file) for file in files]}


def _unused(run: tuple[str | None, ...]) -> Path | None:
    """A folder that this process has made for the same run: MONAI's tracking evaluates a config twice."""
    folder = _made.get(run)
    return folder if folder is not None and _is_unused(folder) else None


def _is_unused(folder: Path) -> bool:
    """Whether nothing was written to the folder of a run but what stands there before it begins."""
    written = [path.name for path in folder.rglob("*") if path.is_file()]
    return RECORD in written and all(_BEFORE_A_RUN.fullmatch(name) for name in written)


def _leave_if_unused(folder: Path) -> None:
    """At the end of a process: free the name of a run that failed before it began."""
    if not folder.is_dir() or not _is_unused(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    newest = newest_run(folder.parent, lambda _: True)
    if newest is not None:
        point_latest(newest)
    else:
        (folder.parent / LATEST).unlink(missing_ok=True)


def leave_no_empty_folder(folder: Path) -> None:
    """
    Remove a folder that is still to be made, and its parents, at the end of the process, unless something is in them.

    Example:
        >>> leave_no_empty_folder(Path("runs"))
    """
    missing = [path.absolute() for path in (folder, *folder.parents) if not path.exists()]
    atexit.register(_remove_empty, missing)


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:  # the inner ones come first
        with suppress(OSError):
            folder.rmdir()


def _named(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise FileExistsError(taken_name(folder)) from error
    return folder


def _timed(parent: Path) -> Path:
    """A folder that no other run has, however many begin in the same second."""
    now, number = time.strftime("%Y-%m-%d_%H%M%S"), 1
    while True:
        folder = parent / (now if number == 1 else f"{now}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def _can_go_on(folder: Path) -> bool:
    """Whether a run has saved something to go on from, and is not complete."""
    if (folder / "models/checkpoint.pt").is_file():
        return True  # a complete training, too: it may get more epochs
    tables = any(any(folder.glob(pattern)) for pattern in ("parts/*.pt", "*.csv"))
    return tables and not is_finished(folder)
