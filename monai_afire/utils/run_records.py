# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which of the runs beside each other is the newest: each says in a record of its own when it was started."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from monai_afire.utils.files import write_text

__all__ = [
    "LATEST",
    "RECORD",
    "mark_finished",
    "newest_first",
    "newest_run",
    "read_record",
    "run_folders",
    "write_record",
]

RECORD = "run.json"
"""Makes a folder a run's."""
LATEST = "latest"
"""Beside the runs of a bundle, what leads to the last one."""


def write_record(
    folder: str | os.PathLike, step: str, facts: Mapping[str, Any] | None = None
) -> None:
    """
    Note in a run's folder that it starts now; a run that goes on starts again.

    Args:
        folder: of the run.
        step: what the run does, such as "train".
        facts: what else to note, JSON data; what stands there stays.

    Raises:
        OSError: when the folder cannot be written to.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write_record(folder, "train")
        >>> read_record(folder)["step"]
        'train'
    """
    now = {"step": step, "started": datetime.now(timezone.utc).isoformat()}
    record = {**read_record(folder), **(facts or {}), **now}
    write_text(Path(folder, RECORD), json.dumps(record))


def mark_finished(folder: str | os.PathLike, is_finished: bool) -> None:
    """
    Note whether a run is complete. A folder without a record, which is no run's, stays as it is.

    Args:
        folder: of the run.
        is_finished: whether it is complete.

    Example:
        >>> mark_finished("no_such_folder", True)
    """
    record = read_record(folder)
    if record and record.get("finished", False) != is_finished:
        write_text(Path(folder, RECORD), json.dumps({**record, "finished": is_finished}))


def read_record(folder: str | os.PathLike) -> dict[str, Any]:
    """
    What a run says about itself.

    Args:
        folder: any.

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

    Args:
        parent: of the runs, such as ``runs/afire``.

    Returns:
        The folders by name.

    Example:
        >>> run_folders("no_such_folder")
        []
    """
    folders = sorted(path.parent for path in Path(parent).glob(f"*/{RECORD}"))
    return [folder for folder in folders if folder.name != LATEST]


def newest_first(folders: Iterable[Path]) -> list[Path]:
    """
    Runs by their records: the one that was started last comes first.

    Args:
        folders: of the runs.

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
