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

from monai_afire.apps.runs.command_line import given_words
from monai_afire.apps.runs.follow_up import config_files
from monai_afire.apps.runs.phantom_weights import are_of_phantoms
from monai_afire.data.datalist.image_list import image_fingerprint
from monai_afire.handlers.run_folder import RunFolder
from monai_afire.networks.weights.model_file import read_description
from monai_afire.networks.weights.released_files import MODEL_OF_RUN, weights_file
from monai_afire.utils.distributed import (
    by_main_rank,
    has_process_group,
    is_launched,
)
from monai_afire.utils.files import check_writable, refuse_existing, write_text
from monai_afire.utils.run_records import (
    LATEST,
    RECORD,
    newest_first,
    newest_run,
    read_record,
    run_folders,
    write_record,
)
from monai_afire_cli.overrides import did_you_mean
from monai_afire_cli.starting import quoted
from monai_afire_cli.words import passed_word

__all__ = [
    "check_folders",
    "run_folder",
    "run_name",
    "run_weights",
    "stopped_run",
]

logger = logging.getLogger(__name__)

RUNS = "runs"
_RESERVED = (LATEST, "data")
_BEFORE_A_RUN = re.compile(r"run\.json|config_\w+\.json")  # the latter by MONAI's tracking
# options that say how a run computes, and for how long, rather than what
_MAY_CHANGE = {
    *("resume", "name", "dataset_dir", "datalist", "epochs"),
    *("device", "num_workers", "cache", "cache_dir", "logging_file"),
}
_MOST_LISTED = 10
_made: dict[tuple[Path, str, str | None], Path] = {}  # folders that this process has made


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
    # MONAI's tracking evaluates a config before the texts of the command line are read
    is_resumed = str(resume).lower() == "true"
    plain = None if name is None else str(name)
    return by_main_rank(_run_folder, bundle, step, plain, is_resumed, images)


def stopped_run(
    bundle: str, step: str, name: str | None = None, images: Sequence[str | None] = ()
) -> Path | None:
    """
    The run to go on with by ``--resume True``.

    Args:
        bundle: folder or name of the bundle.
        step: what the run does.
        name: of the run; None for the latest one of this step that was started with the same images and options as
            this command, of those that are not complete if there are any. ``epochs`` and what only the machine has to
            do with may differ.
        images: see :func:`run_folder`.

    Returns:
        Its folder; None where no run can be resumed.

    Raises:
        ValueError: when the run of this name is of another step, or no run fits; the message lists those that there
            are.

    Example:
        >>> stopped_run("no_such_bundle", "train") is None
        True
    """
    if name is None:
        return _fitting_run(_parent(bundle), step, images)
    folder = _parent(bundle) / name
    if not folder.exists():
        return None
    if not _is_of(folder, step):
        found = read_record(folder).get("step", "something else")
        raise ValueError(f"{folder} is a run of {found}, not of {step}: choose another --name")
    return folder


def run_weights(
    run: str | None,
    bundle: str,
    task: str | None = None,
    otherwise: str | None = None,
    released: str | None = None,
    images: Sequence[Any] | None = None,
) -> str | None:
    """
    File of the weights of a run.

    Args:
        run: "latest", the name of a run of the bundle, or a path: of a run's folder or of a file. None for no run.
        bundle: folder or name of the bundle.
        task: of the network; "latest" is the latest run that has such a network. None for any.
        otherwise: file where no run is named.
        released: file in the place of ``otherwise``, for radiographs, where that was trained on phantoms or is missing.
        images: what names the user's images, None for each that is not given: without any, they are phantoms. None for
            radiographs.

    Returns:
        The file.

    Raises:
        FileNotFoundError: when there is no such run; the message names those that there are.

    Example:
        >>> run_weights(None, "afire", otherwise="released")
        'released'
    """
    if run is None:
        are_phantoms = images is not None and not any(images)
        if released is None or are_phantoms or _knows_radiographs(otherwise):
            return otherwise
        return released
    parent = _parent(bundle)
    own = parent / run
    if run == LATEST:
        newest = newest_run(parent, lambda folder: _has_weights(folder, task))
        if newest is not None:
            return str(newest / MODEL_OF_RUN)
    elif own.is_dir():
        return str(own / MODEL_OF_RUN)
    elif Path(run).exists():
        return str(weights_file(run))
    names = [folder.name for folder in run_folders(parent)]
    kind = f" with {task} weights" if run == LATEST and task else ""
    there = ", ".join(names) or "none"
    raise FileNotFoundError(
        f"--weights_of {run}: no such run{kind} in {parent.absolute()} (there: {there}), and no such path"
        f"{did_you_mean(run, names)}"
    )


def run_name(output_dir: str | os.PathLike) -> str | None:
    """
    Name of the run whose folder this is.

    Args:
        output_dir: folder of results.

    Returns:
        What ``--name`` takes; None for another folder.

    Example:
        >>> run_name("no/such/folder") is None
        True
    """
    folder = Path(output_dir)
    return folder.name if read_record(folder) else None


def check_folders(
    output_dir: str, ckpt_dir: str, resume: bool = False, items: Sequence[Any] = ()
) -> None:
    """
    Make sure that a training can write to its folders, and that no other one has, before hours of work depend on it.

    New folders that stay empty, because the run fails before it begins, are removed when the process ends.

    Args:
        output_dir: of pictures and curves.
        ckpt_dir: of the weights.
        resume: whether the run goes on with what is there.
        items: that the run trains on.

    Raises:
        FileExistsError: when a folder has the results of another run.
        OSError: when a folder cannot be written to.
        RuntimeError: when the checkpoint to resume is of other images.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> check_folders(folder, f"{folder}/models")
    """
    if resume and (problem := by_main_rank(_other_images, ckpt_dir, items)):
        raise RuntimeError(problem)
    by_main_rank(_check_folders, Path(output_dir), Path(ckpt_dir), resume)
    step = read_record(Path(output_dir)).get("step")
    if resume and step:
        by_main_rank(_begin_again, Path(output_dir), step)


def _other_images(ckpt_dir: str, items: Sequence[Any]) -> str | None:
    return RunFolder(ckpt_dir).other_images(image_fingerprint(items))


def _check_folders(output_dir: Path, ckpt_dir: Path, resume: bool) -> None:
    for folder in (output_dir, ckpt_dir):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        atexit.register(_remove_empty, [path.absolute() for path in missing])
    check_writable(ckpt_dir, output_dir)
    if not resume:
        own = (
            f".{os.getpid()}."  # TensorBoard's files have the number of the process in their names
        )
        curves = [path for path in output_dir.glob("events.out.tfevents*") if own not in path.name]
        refuse_existing(ckpt_dir / "checkpoint.pt", ckpt_dir / "model.pt", *curves)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, the inner ones first, unless something is in them."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _run_folder(
    bundle: str, step: str, name: str | None, resume: bool, images: Sequence[str | None]
) -> str:
    parent = _parent(bundle)
    if name is not None and (not name or Path(name).name != name or name in (*_RESERVED, "..")):
        raise ValueError(f"--name {name}: needs a plain name of a folder, other than {_RESERVED}")
    folder = stopped_run(bundle, step, name, images) if resume else None
    if folder is not None:
        logger.info(f"going on with the run {folder}{_described(read_record(folder))}")
    folder = folder or _unused(parent, step, name)
    if folder is None:
        check_writable(parent)
        folder = _named(parent / name) if name else _timed(parent)
        _made[parent.absolute(), step, name] = folder
        atexit.register(_leave_if_unused, folder.absolute())
        write_record(folder, step, {"images": _absolute(images), "options": _options()})
        _point_latest(folder)
    elif read_record(folder).get("images") == _absolute(images):
        _begin_again(folder, step)
    return str(folder)


def _begin_again(folder: Path, step: str) -> None:
    """Make a run that goes on the newest one, as soon as it is known that it does."""
    write_record(folder, step)
    _point_latest(folder)


def _fitting_run(parent: Path, step: str, images: Sequence[str | None]) -> Path | None:
    """The newest run of a step with these images and this command's options; one that is not complete, if any is."""
    folders = [
        folder for folder in run_folders(parent) if _is_of(folder, step) and _can_go_on(folder)
    ]
    fitting = [folder for folder in folders if _fits(read_record(folder), images)]
    unfinished = [folder for folder in fitting if not read_record(folder).get("finished")]
    if folders and not fitting:
        raise ValueError(_no_run_fits(step, newest_first(folders)))
    newest = newest_first(unfinished or fitting)
    return newest[0] if newest else None


def _fits(record: Mapping[str, Any], images: Sequence[str | None]) -> bool:
    then, now = record.get("options"), _options()
    are_same = (
        None in (then, now) or then == now
    )  # a Python program has no options that could be compared
    return are_same and record.get("images") == _absolute(images)


def _no_run_fits(step: str, folders: Sequence[Path]) -> str:
    lines = [
        f"\n  --name {quoted(passed_word('name', folder.name))}{_described(read_record(folder))}"
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
    is_training = record.get("step") == "train"
    state = "complete" if record.get("finished") else "not complete"
    of_training = f"{state}, " if is_training else ""  # other steps do not record their end
    started = str(record.get("started", ""))[:19].replace("T", " ")
    return (
        f" ({of_training}started {started} UTC, images: {' and '.join(images) or 'drawn phantoms'})"
    )


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
    files = config_files(words.get("config_file") or "")
    return {**options, "config_file": [os.path.abspath(file) for file in files]}


def _unused(parent: Path, step: str, name: str | None) -> Path | None:
    """A folder that this process has made for the same run: MONAI's tracking evaluates a config twice."""
    folder = _made.get((parent.absolute(), step, name))
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
        _point_latest(newest)
    else:
        (folder.parent / LATEST).unlink(missing_ok=True)


def _named(folder: Path) -> Path:
    try:
        folder.mkdir()
    except FileExistsError as error:
        remedy = "choose another --name, or go on with it, with the same images, by --resume True"
        raise FileExistsError(f"there is a run {folder} already: {remedy}") from error
    return folder


def _timed(parent: Path) -> Path:
    """A folder that no other run has, however many begin in the same second."""
    now, number = time.strftime("%Y-%m-%d_%H%M%S"), 1
    while True:
        folder = parent / (now if number == 1 else f"{now}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def _point_latest(folder: Path) -> None:
    latest = folder.with_name(LATEST)
    if latest.is_dir() and not latest.is_symlink():
        logger.warning(f"{latest} is a folder, of a copy that followed the link: delete it")
        return
    link = folder.with_name(f".{LATEST}.{os.getpid()}")
    try:
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
        link.replace(latest)
    except OSError:  # a file system, or a system, without links
        write_text(latest, f"{folder.name}\n")


def _parent(bundle: str) -> Path:
    """The folder of a bundle's runs; "." is a name, too, for who works in the bundle's folder."""
    return Path(RUNS, Path(bundle).resolve().name)


def _is_of(folder: Path, step: str) -> bool:
    return read_record(folder).get("step") == step


def _can_go_on(folder: Path) -> bool:
    """Whether a run has saved something to go on from; one that failed before is no run to resume."""
    # of a training; of tables, unfinished or not
    saved = ("models/checkpoint.pt", "parts/*.pt", "*.csv")
    return any(any(folder.glob(pattern)) for pattern in saved)


def _knows_radiographs(path: str | None) -> bool:
    """Whether there is a file of weights that does not say that it was trained on phantoms."""
    return path is not None and Path(path).is_file() and not are_of_phantoms(path)


def _has_weights(folder: Path, task: str | None) -> bool:
    description = read_description(folder / MODEL_OF_RUN)
    return description is not None and task in (None, description.task)
