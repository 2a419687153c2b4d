# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
The runs of a bundle, and which is the newest: each says in a record of its own when it was started.

Both doors read them here: ``monai-afire``, which imports nothing that is slow to load, and MONAI's own command.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

__all__ = [
    "LATEST",
    "MODEL_OF_RUN",
    "RECORD",
    "begin_again",
    "begin_run",
    "has_run_folder",
    "has_weights",
    "is_finished",
    "newest_first",
    "newest_run",
    "note_finished",
    "other_step",
    "point_latest",
    "read_record",
    "run_folders",
    "runs_of",
    "taken_name",
    "wrong_name",
]

logger = logging.getLogger(__name__)

RECORD = "run.json"
"""Makes a folder a run's."""
LATEST = "latest"
"""Beside the runs of a bundle, what leads to the last one."""
MODEL_OF_RUN = Path("models", "model.pt")
"""Where the folder of a run has its weights."""
_RESERVED = (LATEST, "data")


def runs_of(bundle: str | os.PathLike) -> Path:
    """
    The folder of a bundle's runs, below the current one; "." is a bundle, too, for who works in its folder.

    Example:
        >>> runs_of("bundles/afire").as_posix()
        'runs/afire'
    """
    return Path("runs", Path(bundle).resolve().name)


def wrong_name(name: str) -> str | None:
    """
    What is wrong with the name of a new run, and the remedy; None for a right one.

    Example:
        >>> wrong_name("hospital a")
        >>> wrong_name("a/b")
        "a/b: the name of a run is that of one folder, without slashes, and none of ('latest', 'data')"
    """
    if name and Path(name).name == name and name not in (*_RESERVED, ".."):
        return None
    return f"{name or repr(name)}: the name of a run is that of one folder, without slashes, and none of {_RESERVED}"


def has_run_folder(words: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """
    Whether a command has a folder of its own among the runs, rather than writing elsewhere.

    Example:
        >>> config = {"run_dir": {"step": "train"}}
        >>> has_run_folder({}, config), has_run_folder({"output_dir": "results"}, config)
        (True, False)
    """
    if not isinstance(config.get("run_dir"), Mapping) or "output_dir" in words:
        return False
    return words.get("run_id", "run") == "run"


def has_weights(folder: str | os.PathLike) -> bool:
    """
    Whether a run has written weights.

    Args:
        folder: of the run.

    Example:
        >>> has_weights("no_such_folder")
        False
    """
    return Path(folder, MODEL_OF_RUN).is_file()


def taken_name(folder: str | os.PathLike) -> str:
    """
    That the name of a new run is that of another one.

    Example:
        >>> taken_name("mine").startswith("there is a run mine already: choose another --name")
        True
    """
    remedy = "choose another --name, or go on with it, with the same images, by --resume True"
    return f"there is a run {folder} already: {remedy}"


def other_step(folder: str | os.PathLike, step: str) -> str | None:
    """
    That a run is of another step than the one that would go on with it; None where it is of this step.

    Example:
        >>> other_step("mine", "train")
        'mine is a run of something else, not of train: choose another --name'
    """
    found = read_record(folder).get("step", "something else")
    return (
        None
        if found == step
        else f"{folder} is a run of {found}, not of {step}: choose another --name"
    )


def read_record(folder: str | os.PathLike) -> dict[str, Any]:
    """
    What a run says about itself.

    Returns:
        "step", "started", a time in ISO 8601, and what else was noted; nothing for a folder that is no run's.

    Example:
        >>> read_record("no_such_folder")
        {}
    """
    try:
        content = json.loads(Path(folder, RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    # a file that somebody has changed: a time of another type could not be compared
    texts = ("step", "started")
    return {
        name: value
        for name, value in content.items()
        if name not in texts or isinstance(value, str)
    }


def run_folders(parent: str | os.PathLike) -> list[Path]:
    """
    The folders of the runs in a folder; "latest", which leads to one of them, is none.

    Example:
        >>> run_folders("no_such_folder")
        []
    """
    folders = sorted(path.parent for path in Path(parent).glob(f"*/{RECORD}"))
    return [folder for folder in folders if folder.name != LATEST]


def newest_first(folders: Iterable[Path]) -> list[Path]:
    """
    Runs by their records: the one that was started last comes first.

    Returns:
        The folders in this order; those that do not say when they were started come last.

    Example:
        >>> newest_first([])
        []
    """
    return sorted(folders, key=lambda folder: read_record(folder).get("started", ""), reverse=True)


def newest_run(parent: str | os.PathLike, is_wanted: Callable[[Path], bool]) -> Path | None:
    """
    The run that was started last, by its record: the times of files change when a folder is copied.

    Args:
        parent: of the runs, such as ``runs/afire``.
        is_wanted: says whether the run in a folder is one of those to choose from.

    Returns:
        Its folder; None for no run.

    Example:
        >>> newest_run("no_such_folder", lambda folder: True) is None
        True
    """
    wanted = [folder for folder in run_folders(parent) if is_wanted(folder)]
    return next(iter(newest_first(wanted)), None)


def begin_run(folder: str | os.PathLike, facts: Mapping[str, Any]) -> None:
    """
    Note that a run starts now, and let "latest" lead to it.

    Args:
        folder: of the run.
        facts: what else to note, JSON data: "step", what the run does, and what it is found again by.

    Raises:
        OSError: when the folder cannot be written to.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> begin_run(f"{folder}/mine", {"step": "train"})
        >>> read_record(f"{folder}/latest")["step"]
        'train'
    """
    started = datetime.now(timezone.utc).isoformat()
    _write(Path(folder, RECORD), json.dumps({**facts, "started": started, "finished": False}))
    point_latest(Path(folder))


def begin_again(folder: str | os.PathLike) -> None:
    """
    Make a run that goes on the newest one. A folder without a record, which is no run's, stays as it is.

    Example:
        >>> begin_again("no_such_folder")
    """
    if record := read_record(folder):
        begin_run(folder, record)


def note_finished(folder: str | os.PathLike) -> None:
    """Note that a run is complete. A folder without a record, which is no run's, stays as it is."""
    record = read_record(folder)
    if record and not record.get("finished"):
        _write(Path(folder, RECORD), json.dumps({**record, "finished": True}))


def is_finished(folder: str | os.PathLike) -> bool:
    """
    Whether a run is complete, by its record.

    Example:
        >>> is_finished("no_such_folder")
        False
    """
    return bool(read_record(folder).get("finished"))


def point_latest(folder: Path) -> None:
    """Let "latest" lead to a run: a link or, where there are none, a text file with its name."""
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
        _write(latest, f"{folder.name}\n")


def _write(path: Path, text: str) -> None:
    """Put a file in place when it is complete: another process may read it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
