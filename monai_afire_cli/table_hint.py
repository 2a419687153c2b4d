# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What to do with a label table where a datalist is needed."""

from __future__ import annotations

import gzip
import os
import shlex
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

__all__ = ["NO_LABELS", "is_table", "list_command"]

NO_LABELS = "a folder of images has no labels; give a list of them (--datalist), which monai-afire data makes"
"""Where labels are needed, and there is no list."""
_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".xls", ".xlsx", ".ods")
_HEADER_BYTES = 10_000


@dataclass(frozen=True)
class _PublishedTable:
    """A table of a public set: its columns, names of files that its reader takes, options for one of another name."""

    columns: tuple[str, ...]
    files: tuple[str, ...]
    as_any_table: str = "--image_column COLUMN --label_columns COLUMN"


# by the set's name for `monai-afire data`
_PUBLISHED = {
    "nih": _PublishedTable(
        ("Image Index", "Finding Labels"),
        ("Data_Entry_2017*",),
        "--image_column 'Image Index' --label_columns 'Finding Labels' --separator '|' "
        "--patient_column 'Patient ID'",
    ),
    "chexpert": _PublishedTable(
        ("Path", "No Finding"), ("train.*", "valid.*", "test.*", "test_labels.*")
    ),
    "mimic": _PublishedTable(("subject_id", "study_id"), ("mimic-cxr-*",)),
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
        The command for the set that has these columns and a file of this name, or the one for any table. Where files of
        an official split are not beside the table, the split is random.

    Example:
        >>> list_command(Path("labels/Data_Entry_2017.csv"), ["Image Index", "Finding Labels"], "nih/images")
        'monai-afire data nih --root nih/images --labels labels --split random --output labels.json'
    """
    header = _first_lines(path) if columns is None else columns
    labels = shlex.quote(str(path.parent))
    root = shlex.quote(os.fspath(images)) if images else "IMAGES"
    folders = f"--root {root} --labels {labels}"
    words = _PublishedTable.as_any_table
    for name, published in _PUBLISHED.items():
        if not all(column in header for column in published.columns):
            continue
        if any(fnmatch(path.name, pattern) for pattern in published.files):
            split = "" if _has_split(name, path.parent) else " --split random"
            return f"monai-afire data {name} {folders}{split} --output labels.json"
        words = published.as_any_table  # the reader of the set would look for another file
    table = f"--table {shlex.quote(path.name)} {words}"
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
