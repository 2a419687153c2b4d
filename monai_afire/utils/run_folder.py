# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run is a folder: ``runs/<bundle>/<name or time>`` below the current one."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from monai_afire.utils.distributed import by_main_rank, has_process_group
from monai_afire.utils.process_group import is_launched

__all__ = ["CHECKPOINT", "MODEL", "print_results", "run_dir", "runs_of"]

RUNS = "runs"
MODEL, CHECKPOINT = "models/model.pt", "models/checkpoint.pt"  # in the folder of a training
_made: list[Path] = []  # folders of this process into which only MONAI's tracking has written


def run_dir(
    bundle: str | os.PathLike,
    name: str | None = None,
    resume: bool = False,
    resumed: str = CHECKPOINT,
) -> str:
    """
    Make the folder of a run, or find that of the run to resume. Of several processes the main one decides.

    Args:
        bundle: folder or name of the bundle.
        name: of the run; None for the time.
        resume: take the run of this name or, without a name, the newest one of the bundle that has ``resumed``.
        resumed: file of a run that can be resumed.

    Returns:
        Its path, relative to the current folder.

    Raises:
        FileExistsError: when a run has this name.
        FileNotFoundError: when there is no run to resume.
        RuntimeError: in one of several processes that have not joined yet.

    Example:
        >>> import pytest, tempfile
        >>> with pytest.MonkeyPatch.context() as patch:
        ...     patch.chdir(tempfile.mkdtemp())
        ...     Path(run_dir("afire", "hospital_a")).as_posix()
        'runs/afire/hospital_a'
    """
    if is_launched() and not has_process_group():
        raise RuntimeError(
            "the processes have not joined, so each would have a run: give the folder (output_dir)"
        )
    return by_main_rank(_run_dir, runs_of(bundle), name, _is_true(resume), resumed)


def runs_of(bundle: str | os.PathLike) -> Path:
    """Folder of the runs of a bundle, by its folder or name."""
    return Path(RUNS, Path(bundle).resolve().name)


def newest_run(parent: Path, is_wanted: Callable[[Path], bool]) -> Path | None:
    """The run that was written last, of those that are wanted; None for none."""
    found = [folder for folder in parent.glob("*/") if is_wanted(folder)]
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)


def print_results(output_dir: str | os.PathLike) -> None:
    """Print the folder of a run and what is in it, on the main rank."""

    def say() -> None:
        names = sorted(
            path.name + "/" * path.is_dir()
            for path in Path(output_dir).iterdir()
            if path.name[0] != "."
        )
        print(f"results: {output_dir}: {', '.join(names)}", flush=True)

    by_main_rank(say)


def _run_dir(parent: Path, name: str | None, resume: bool, resumed: str) -> str:
    if resume:
        return str(_resumed(parent, name, resumed))
    tracked = next((folder for folder in _made if _is_tracked(folder)), None)
    if tracked is not None:
        _made.remove(tracked)
        return str(tracked)
    folder = _named(parent, str(name)) if name is not None else _timed(parent)
    _made.append(folder)
    atexit.register(_remove_if_empty, folder.absolute())
    return str(folder)


def _resumed(parent: Path, name: str | None, resumed: str) -> Path:
    if name is not None:
        folder: Path | None = parent / str(name)
    else:
        folder = newest_run(parent, lambda each: (each / resumed).exists())
    if folder is None or not folder.is_dir():
        wanted = parent / str(name) if name is not None else f"run with {resumed} in {parent}"
        raise FileNotFoundError(f"nothing to resume: there is no {wanted}; start without resume")
    return folder


def _named(parent: Path, name: str) -> Path:
    """A new folder; an empty one was left by a run that failed before it began."""
    if Path(name).name != name or name in ("", ".", "..", "latest"):
        raise ValueError(f"{name!r} is no name for a run: give a plain name, without a path")
    folder = parent / name
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is a run: choose another name, or resume it")
    return folder


def _timed(parent: Path) -> Path:
    """A new folder of the present second, with the next free suffix."""
    parent.mkdir(parents=True, exist_ok=True)
    stem, number = time.strftime("%Y-%m-%d_%H%M%S"), 1
    while True:
        folder = parent / (stem if number == 1 else f"{stem}_{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
        number += 1


def _is_tracked(folder: Path) -> bool:
    """Whether MONAI's tracking has evaluated a config, and is going to evaluate it again for the run itself."""
    names = [path.name for path in folder.glob("*")]
    return bool(names) and all(name.startswith("config_") for name in names)


def _is_true(resume: bool | str) -> bool:
    """MONAI's tracking evaluates a config before the texts of its command line are read."""
    return str(resume).lower() == "true"


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
