# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The record by which a run is found again, ``run.json``, and "latest" beside the runs, which leads to the last one."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from monai_afire.utils.distributed import by_main_rank
from monai_afire.utils.files import write_text
from monai_afire_cli.run_records import LATEST, RECORD, read_record

__all__ = ["begin_again", "begin_run", "finish_run", "is_finished", "point_latest"]

logger = logging.getLogger(__name__)


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
    _write(folder, {**facts, "started": started, "finished": False})
    point_latest(Path(folder))


def begin_again(folder: str | os.PathLike) -> None:
    """
    Make a run that goes on the newest one. A folder without a record, which is no run's, stays as it is.

    Args:
        folder: of the run, as soon as it is known that it goes on.

    Example:
        >>> begin_again("no_such_folder")
    """
    if record := read_record(folder):
        begin_run(folder, record)


def finish_run(folder: str | os.PathLike) -> None:
    """
    Note that a run is complete: the last step of every run that ends well. All ranks must call it.

    A folder without a record, which is no run's, stays as it is.

    Args:
        folder: of the run.

    Example:
        >>> finish_run("no_such_folder")
    """
    by_main_rank(_finish, folder)


def _finish(folder: str | os.PathLike) -> None:
    record = read_record(folder)
    if record and not record.get("finished"):
        _write(folder, {**record, "finished": True})


def is_finished(folder: str | os.PathLike) -> bool:
    """
    Whether a run is complete, by its record.

    Args:
        folder: of the run.

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
        write_text(latest, f"{folder.name}\n")


def _write(folder: str | os.PathLike, record: Mapping[str, Any]) -> None:
    write_text(Path(folder, RECORD), json.dumps(record))
