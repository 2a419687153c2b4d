# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What to do with a label table where a datalist is needed."""

from __future__ import annotations

import gzip
import os
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
# of the sets whose split is in files of its own
_SPLIT_FILES = {"nih": ("train_val_list*.txt", "test_list*.txt")}


def is_table(path: Path) -> bool:
    """Whether a file's name says that it is a table."""
    return path.name.lower().endswith(_ENDINGS)


def list_command(
    path: Path, columns: Collection[str] | None = None, images: str | os.PathLike | None = None
) -> str:
    """
    The command that makes a datalist of a label table.

    Args:
        path: the table.
        columns: its columns, if they are known; they are searched for in its first lines otherwise.
        images: folder of the images; None for one to be filled in.

    Returns:
        The command for the set that has these columns, or the one for any table. Where files of an official split are
        not beside the table, the split is random.

    Example:
        >>> list_command(Path("labels/Data_Entry_2017.csv"), ["Image Index", "Finding Labels"], "nih/images")
        'monai-afire data nih --root nih/images --labels labels --split random --output labels.json'
    """
    header = _first_lines(path) if columns is None else columns
    labels = shlex.quote(str(path.parent))
    root = shlex.quote(os.fspath(images)) if images else "IMAGES"
    folders = f"--root {root} --labels {labels}"
    for name, needed in _PUBLISHED.items():
        if all(column in header for column in needed):
            split = "" if _has_split(name, path.parent) else " --split random"
            return f"monai-afire data {name} {folders}{split} --output labels.json"
    table = f"--table {shlex.quote(path.name)} --image_column COLUMN --label_columns COLUMN"
    return f"monai-afire data table {folders} {table} --output labels.json"


def _has_split(name: str, folder: Path) -> bool:
    """Whether the files of a set's official split are in a folder or right below it, plain or compressed."""
    return all(
        any(folder.glob(f"{pattern}*")) or any(folder.glob(f"*/{pattern}*"))
        for pattern in _SPLIT_FILES.get(name, ())
    )


def _first_lines(path: Path) -> str:
    """Beginning of a table, plain or compressed; empty where it cannot be read."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
            return stream.read(_HEADER_BYTES).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error):
        return ""
