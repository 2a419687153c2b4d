# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What to do with a label table where a datalist is needed."""

from __future__ import annotations

import csv
import gzip
import os
import re
import shlex
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

__all__ = ["NO_LABELS", "is_table", "list_command", "no_datalist", "table_columns"]

NO_LABELS = "a folder of images has no labels; give a list of them (--datalist), which monai-afire data makes"
"""Where labels are needed, and there is no list."""
_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".xls", ".xlsx", ".ods")
_HEADER_BYTES = 10_000


@dataclass(frozen=True)
class _PublishedTable:
    """A table of a public set: columns that its reader needs, and names of files that it takes."""

    columns: tuple[str, ...]
    files: tuple[str, ...]


# by the set's name for `monai-afire data`
_PUBLISHED = {
    "nih": _PublishedTable(
        ("Image Index", "Finding Labels", "Patient ID", "View Position"), ("Data_Entry_2017*.csv*",)
    ),
    "chexpert": _PublishedTable(
        ("Path", "No Finding"), ("train.csv*", "valid.csv*", "test.csv*", "test_labels.csv*")
    ),
    "mimic": _PublishedTable(
        ("subject_id", "study_id"),
        tuple(f"mimic-cxr-*-{name}.csv*" for name in ("split", "metadata", "chexpert", "negbio")),
    ),
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
        columns: its columns, if they are known; they are read from its first line otherwise.
        images: folder of the images; None for that of the table or, with none of them in it, one to be filled in.

    Returns:
        The command for the set whose reader takes this file, and no other one beside it, or else the one for any table.
        Where files of an official split are not there, the split is random; where a part of the images is not in their
        folder, they are left out.

    Example:
        >>> header = ["Image Index", "Finding Labels", "Patient ID", "View Position"]
        >>> list_command(Path("labels/Data_Entry_2017.csv"), header, "nih/images")
        'monai-afire data nih --root nih/images --labels labels --split random --output labels.json'
    """
    header = table_columns(path) if columns is None else list(columns)
    folder = images or path.parent
    present, absent = _listed_images(path, header, folder, is_searched=bool(images))
    root = shlex.quote(os.fspath(folder)) if images or present else "IMAGES"
    folders = f"--root {root} --labels {shlex.quote(str(path.parent))}"
    output = "--output labels.json"
    if present and absent:
        output = f"--allow_missing {output}"
    for name, published in _PUBLISHED.items():
        if set(published.columns) <= set(header) and _is_taken(path, published.files):
            split = "" if _has_split(name, path.parent) else "--split random "
            return f"monai-afire data {name} {folders} {split}{output}"
    table = f"--table {shlex.quote(path.name)} {_names_of_columns(header)}"
    return f"monai-afire data table {folders} {table}{output}"


def no_datalist(
    file: str | os.PathLike | None, images: str | os.PathLike | None = None
) -> str | None:
    """
    That a file is a table of labels where a datalist is needed, and what makes one of it.

    Args:
        file: that may be a table.
        images: folder of the images; None for that of the table or, with none of them in it, one to be filled in.

    Returns:
        The problem; None for another file, or for none.
    """
    path = Path(file or "").expanduser()
    if not is_table(path) or not path.is_file():
        return None
    return f"{file} is a table, not a datalist; make one of it: {list_command(path, images=images)}"


def table_columns(path: Path) -> list[str]:
    """Names in the first line of a table, plain or compressed; none where it cannot be read."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
            text = stream.read(_HEADER_BYTES).decode("utf-8-sig", errors="replace")
    except (OSError, EOFError, zlib.error):
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].strip('"').lower().startswith("sep="):  # a line for Excel
        del lines[0]
    cells = re.split(r"[,;\t|]", lines[0]) if lines else []
    return [cell.strip().strip('"').strip() for cell in cells]


def _names_of_columns(columns: Sequence[str]) -> str:
    """Options that name the columns of a table, with a blank behind them; of an unknown one to be filled in."""
    known = set(columns)
    if known >= {"Image Index", "Finding Labels"}:
        patient = "--patient_column 'Patient ID' " if "Patient ID" in known else ""
        names = "--image_column 'Image Index' --label_columns 'Finding Labels'"
        return f"{names} --separator '|' {patient}"
    if known >= {"Path", "No Finding"}:
        findings = shlex.join(columns[columns.index("No Finding") :])
        return f"--image_column Path --label_columns {findings} "
    if known >= {"image", "label"}:
        return ""
    return "--image_column COLUMN --label_columns COLUMN "


def _is_taken(path: Path, patterns: Sequence[str]) -> bool:
    """Whether the reader of a set takes this file, rather than another one beside it."""
    fitting = [pattern for pattern in patterns if fnmatch(path.name, pattern)]
    return bool(fitting) and set(path.parent.glob(fitting[0])) <= {path}


def _listed_images(
    path: Path, columns: Sequence[str], folder: str | os.PathLike, is_searched: bool
) -> tuple[set[str], set[str]]:
    """Names of images in a plain table that are in a folder, or below it if it is searched, and those that are not."""
    column = next((name for name in ("Image Index", "image") if name in columns), None)
    if column is None or path.suffix.lower() != ".csv":
        return set(), set()
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="") as stream:
            listed = {os.path.basename(row.get(column) or "") for row in csv.DictReader(stream)}
    except (OSError, csv.Error):  # its reader says why
        return set(), set()
    there: set[str] = set()
    for _, _, names in os.walk(os.path.expanduser(folder)):
        there.update(names)
        if not is_searched:
            break
    return listed & there, listed - there


def _has_split(name: str, folder: Path) -> bool:
    """Whether the files of a set's official split are in a folder or right below it, plain or compressed."""
    return all(
        any(folder.glob(f"{pattern}*")) or any(folder.glob(f"*/{pattern}*"))
        for pattern in _SPLIT_FILES.get(name, ())
    )
