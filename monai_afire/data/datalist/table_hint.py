# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What to do with a label table where a datalist is needed."""

from __future__ import annotations

import gzip
import shlex
import zlib
from collections.abc import Collection
from pathlib import Path

__all__ = ["is_table", "list_command"]

_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".xls", ".xlsx", ".ods")
_HEADER_BYTES = 10_000
# columns that tell a published table, and the set's name for `monai-afire data`
_PUBLISHED = {
    "nih": ("Image Index", "Finding Labels"),
    "chexpert": ("Path", "No Finding"),
    "mimic": ("subject_id", "study_id"),
}


def is_table(path: Path) -> bool:
    """Whether a file's name says that it is a table."""
    return path.name.lower().endswith(_ENDINGS)


def list_command(path: Path, columns: Collection[str] | None = None) -> str:
    """
    The command that makes a datalist of a label table.

    Args:
        path: the table.
        columns: its columns, if they are known; they are searched for in its first lines otherwise.

    Returns:
        The command for the set that has these columns, or the one for any table.

    Example:
        >>> list_command(Path("labels/Data_Entry_2017.csv"), ["Image Index", "Finding Labels", "Patient ID"])
        'monai-afire data nih --root IMAGES --labels labels --output labels.json'
    """
    header = _first_lines(path) if columns is None else columns
    folder = shlex.quote(str(path.parent))
    for name, needed in _PUBLISHED.items():
        if all(column in header for column in needed):
            return f"monai-afire data {name} --root IMAGES --labels {folder} --output labels.json"
    table = f"--table {shlex.quote(path.name)} --image_column COLUMN --label_columns COLUMN"
    return f"monai-afire data table --root IMAGES --labels {folder} {table} --output labels.json"


def _first_lines(path: Path) -> str:
    """Beginning of a table, plain or compressed; empty where it cannot be read."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
            return stream.read(_HEADER_BYTES).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error):
        return ""
