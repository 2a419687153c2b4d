# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Label files and images on disk: found, read as tables of text, and refused with the lines that are wrong."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.transforms.radiograph_files import extension_of
from monai_afire.utils.text import first_few

Value = TypeVar("Value")

UNCERTAIN = -1  # of a finding that may be there, and of "abnormal" where the labels do not say
# present, absent, uncertain, not mentioned
FINDING_VALUES = {"1": 1, "0": 0, "-1": -1, "": None, "1.0": 1, "0.0": 0, "-1.0": -1}

_STATED_DELIMITER = re.compile(r'"?sep=(.)"?[,;]*\r?(?:\n|$)', re.IGNORECASE)  # Excel's first line


class LabeledImages(NamedTuple):
    """
    What the label files of a set say.

    Args:
        rows: a row for each listed image: "name" as the labels call it, "file" (its path, None if it is not there),
            the keys of its item in the datalist ("label", "abnormal", "patient_id", "view" and others) and, where
            the set has an official split, "section".
        header: "finding_names" if labels are lists, or "labels", the name of each class.
        notes: lines for the person who makes the datalist.
    """

    rows: pd.DataFrame
    header: dict[str, Any]
    notes: list[str]


@dataclass(frozen=True)
class LabelSet:
    """
    A set whose label files are read.

    Args:
        title: its name.
        reference: what to cite.
        read: takes the folder of the images, that of the label files, whether the official split is wanted, and the
            set's own options; its docstring is the help of the command.
        draw_mask: makes the mask of a row, a (rows, columns) array of 0 and 1; None for a set without masks.
    """

    title: str
    reference: str
    read: Callable[..., LabeledImages]
    draw_mask: Callable[[Mapping[str, Any]], np.ndarray] | None = None


def find_file(folder: Path, *patterns: str) -> Path | None:
    """A label file in a folder or right below it, plain or compressed with gzip; None if there is none."""
    for pattern in patterns:
        for place in (pattern, f"*/{pattern}"):
            plain = sorted(folder.glob(place))
            packed = sorted(folder.glob(f"{place}.gz"))
            found = plain + [path for path in packed if path.with_suffix("") not in plain]
            if len(found) > 1:
                text = f"several files are {pattern}: {first_few(found)}"
                raise DatalistError(f"{folder}: {text}; keep one, or set --labels to its folder.")
            if found:
                return found[0]
    return None


def require_file(folder: Path, *patterns: str, unless: str = "") -> Path:
    """A label file that must be there, ``unless`` an option is given."""
    if path := find_file(folder, *patterns):
        return path
    remedy = f"put it there, or set --labels to its folder{unless and f', or give {unless}'}"
    raise DatalistError(f"{folder}: no file {' or '.join(patterns)}; {remedy}.")


def read_text(path: Path) -> str:
    """Text of a label file, unpacked if its content is gzip whatever its name, without byte-order mark."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        remedy = "check the name, or download it again"
        raise DatalistError(f"{path}: cannot be read ({error}); {remedy}.") from error
    if not content.strip():
        raise DatalistError(f"{path}: is empty; download or export it again.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        text = f"line {line} is not text in UTF-8; save the table as CSV in UTF-8"
        raise DatalistError(f"{path}: {text}.") from error


def read_table(path: Path, expected: Sequence[str]) -> pd.DataFrame:
    """
    Cells of a CSV file as text without blanks around them; the index is the number of each row's line.

    The names of the ``expected`` columns tell what separates cells. Of columns with the same name the first one counts.
    """
    lines = _read_lines(path, expected)
    if len(lines) < 2:
        raise DatalistError(f"{path}: has no rows below a header; export the table again.")
    header = lines.pop(min(lines))
    while header and not header[-1]:
        header.pop()
    width = len(header)
    ragged = {
        line: f"{len(row)} cells"
        for line, row in lines.items()
        if len(row) < width or any(row[width:])
    }
    reason = f"there are not {width} cells, as in the header,"
    refuse_lines(path, ragged, reason, "add or remove separators, or quote cells")
    rows = [row[:width] for row in lines.values()]
    table = pd.DataFrame(rows, columns=header, index=list(lines))
    return table.loc[:, ~table.columns.duplicated()]


def _read_lines(path: Path, expected: Sequence[str]) -> dict[int, list[str]]:
    """Cells of each line that is not empty, by its number; without one that states the delimiter."""
    text = read_text(path)
    stated = _STATED_DELIMITER.match(text)
    delimiter = stated[1] if stated else _delimiter(text, expected)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    lines = {}
    try:
        for row in reader:
            if any(row):
                lines[reader.line_num] = [cell.strip() for cell in row]
    except csv.Error as error:
        fault = f"line {reader.line_num} is not valid CSV ({error})"
        raise DatalistError(f"{path}: {fault}; correct the quotes.") from error
    if stated:
        del lines[min(lines)]
    return lines


def _delimiter(text: str, expected: Sequence[str]) -> str:
    """What separates the header into the expected columns; else into the most; else the comma."""

    def fit(delimiter: str) -> tuple[int, int]:
        cells = next(csv.reader(io.StringIO(text.lstrip(), newline=""), delimiter=delimiter))
        return len({cell.strip() for cell in cells} & set(expected)), len(cells)

    return max(",;\t|", key=fit)


def refuse_lines(
    path: Path, wrong: Mapping[Any, Any] | pd.Series, reason: str, remedy: str
) -> None:
    """Refuse a file if any of its lines is wrong: what is wrong there, by the number of the line."""
    if len(wrong):
        lines = first_few(f"line {line}{found and f' ({found})'}" for line, found in wrong.items())
        raise DatalistError(f"{path}: {reason} in {lines}; {remedy}.")


def cell_values(path: Path, cells: pd.Series, accepted: Mapping[str, Value]) -> list[Value]:
    """Values of a column whose cells must hold one of a few texts."""
    wrong = cells[~cells.isin(accepted.keys())].map(repr)
    texts = ", ".join(text or "empty" for text in accepted)
    refuse_lines(path, wrong, f"{cells.name} has unknown values", f"accepted: {texts}")
    return [accepted[cell] for cell in cells]


def finding_labels(path: Path, table: pd.DataFrame, names: Sequence[str]) -> list[list[int | None]]:
    """Of each row the values of some findings, see ``FINDING_VALUES``."""
    columns = [cell_values(path, table[name], FINDING_VALUES) for name in names]
    return [list(values) for values in zip(*columns, strict=True)]


def files_by_name(root: Path, names: Iterable[str]) -> list[str | None]:
    """Images anywhere below a folder by their names without extension."""
    found: dict[str, list[str]] = {}
    for relative in scan_radiographs(root):
        found.setdefault(stem_of(relative), []).append(relative)
    files: list[str | None] = []
    for name in names:
        matches = found.get(stem_of(name), [])
        if len(matches) > 1:
            matches = [match for match in matches if os.path.basename(match) == name] or matches
        if len(matches) > 1:
            text = f"{name} is there {len(matches)} times: {first_few(matches)}"
            raise DatalistError(f"{root}: {text}; set --root to a folder with one copy.")
        files.append(os.path.join(root, matches[0]) if matches else None)
    return files


def existing_files(paths: Sequence[str]) -> list[str | None]:
    """Paths that are files, None in the place of the others."""
    return [
        path if os.path.isfile(path) else None for path in progress(paths, "looking for images")
    ]


def stem_of(name: str) -> str:
    """File name without folder and extension; the last number of a UID is no extension."""
    name = os.path.basename(name)
    return name[: len(name) - len(extension_of(name))]


def progress(things: Sequence[Value], what: str) -> Iterable[Value]:
    """Go through things, with a progress bar if it takes more than two seconds."""
    return tqdm(things, desc=what, unit="file", delay=2, dynamic_ncols=True)
