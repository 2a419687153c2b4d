# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Label files as they are published or come out of a spreadsheet: found, unpacked, read, and refused line by line."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from monai_afire.data.datalist.datalist_checks import DatalistError, parse_json
from monai_afire.utils.text import did_you_mean, first_few

Value = TypeVar("Value")

# texts of a finding: 1 present, 0 absent, -1 uncertain, None not mentioned
FINDING_VALUES: dict[str, int | None] = {
    "1": 1,
    "0": 0,
    "-1": -1,
    "": None,
    "1.0": 1,
    "0.0": 0,
    "-1.0": -1,
}

# a first line that Excel writes and reads
_STATED_DELIMITER = re.compile(r'"?sep=(.)"?[,;]*\r?(?:\n|$)', re.IGNORECASE)
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_HEADER_CHARACTERS = 100_000

_FOREIGN_CONTENT = (
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet file; unpack it, or save it as CSV"),
    (b"<!doctype", "a web page, not a table; the download failed, log in and download it again"),
    (b"<html", "a web page, not a table; the download failed, log in and download it again"),
)


@dataclass(frozen=True)
class Table:
    """Cells of a label file as text without blanks around them; the index is the number of each row's line."""

    path: Path
    cells: pd.DataFrame

    def __len__(self) -> int:
        return len(self.cells)

    def column(self, name: str) -> list[str]:
        """Cells of one column."""
        return self.cells[name].tolist()

    def refuse(self, wrong: Iterable[tuple[Any, Any]], reason: str, remedy: str) -> None:
        """Refuse the table if any of its lines, given by its number and what is wrong there, is wrong."""
        if lines := [f"line {line} ({found})" for line, found in wrong]:
            raise DatalistError(f"{self.path}: {reason} in {first_few(lines)}; {remedy}.")

    def require_cells(self, *names: str) -> None:
        """Refuse empty cells in some columns."""
        rows, columns = (self.cells[list(names)] == "").to_numpy().nonzero()
        empty = zip(self.cells.index[rows], (names[column] for column in columns), strict=True)
        self.refuse(empty, "empty cells", "fill them in, or delete the rows")

    def require_unique(self, name: str) -> None:
        """Refuse a column that has the same value twice."""
        twice = self.cells[name][self.cells[name].duplicated()]
        self.refuse(
            twice.items(), f"{name} is repeated", "each may occur once: delete the repeated rows"
        )

    def values(self, name: str, accepted: Mapping[str, Value]) -> list[Value]:
        """Values of a column whose cells must hold one of a few texts."""
        cells = self.cells[name]
        wrong = cells[~cells.isin(accepted.keys())].map(repr)
        texts = ", ".join(text or "empty" for text in accepted)
        self.refuse(wrong.items(), f"{name} has unknown values", f"accepted: {texts}")
        return [accepted[cell] for cell in cells]

    def described(self, **columns: str) -> list[dict[str, str]]:
        """Of each row what some columns say, by the names that items have; a column need not be there, nor filled."""
        there = [name for name, column in columns.items() if column in self.cells]
        rows = self.cells[[columns[name] for name in there]].to_numpy()
        return [{name: cell for name, cell in zip(there, row, strict=True) if cell} for row in rows]

    def findings(self, names: Sequence[str]) -> list[list[int | None]]:
        """Values of the findings of each row, see ``FINDING_VALUES``."""
        columns = [self.values(name, FINDING_VALUES) for name in names]
        return [list(values) for values in zip(*columns, strict=True)]

    def numbers(self, name: str) -> np.ndarray:
        """Cells of a column that must hold finite numbers."""
        numbers = pd.to_numeric(self.cells[name], errors="coerce").to_numpy(dtype=float)
        wrong = self.cells[name][~np.isfinite(numbers)].map(repr)
        self.refuse(wrong.items(), f"{name} is not a number", "correct the cells")
        return numbers

    def boxes(self, sides: Sequence[str], size: int) -> list[list[float]]:
        """Boxes (x, y, width, height) of four columns, which must lie inside a square image of so many pixels."""
        boxes = np.column_stack([self.numbers(side) for side in sides])
        start, extent = boxes[:, :2], boxes[:, 2:]
        outside = ((start < 0) | (extent <= 0) | (start + extent > size)).any(axis=1)
        shown = (f"{x:g}, {y:g}, {width:g}, {height:g}" for x, y, width, height in boxes[outside])
        remedy = f"x, y, width, height must lie inside {size} x {size}"
        self.refuse(
            zip(self.cells.index[outside], shown, strict=True), "boxes outside the image", remedy
        )
        return boxes.tolist()


def find_optional_file(folder: Path, patterns: Sequence[str], purpose: str) -> Path | None:
    """Find a label file in a folder or one of its direct subfolders, plain or compressed with gzip; None without."""
    for pattern in patterns:
        for prefix in ("", "*/"):
            found = set(folder.glob(prefix + pattern))
            found |= {path.with_suffix("") for path in folder.glob(f"{prefix}{pattern}.gz")}
            if len(found) > 1:
                names = first_few(sorted(path.relative_to(folder) for path in found))
                raise DatalistError(
                    f"{folder}: several files hold the {purpose}: {names}; keep one, or set --labels."
                )
            if found:
                [path] = found
                return path if path.exists() else path.with_name(path.name + ".gz")
    return None


def find_label_file(folder: Path, patterns: Sequence[str], purpose: str) -> Path:
    """Find a label file that must be there."""
    if path := find_optional_file(folder, patterns, purpose):
        return path
    names = " or ".join(patterns)
    raise DatalistError(
        f"{folder}: no file {names} ({purpose}); put it there, or set --labels to its folder."
    )


def read_text(path: Path) -> str:
    """Text of a label file, unpacked if its content is gzip whatever its name, without byte-order mark."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatalistError(
            f"{path}: is damaged gzip data ({error}); download it again."
        ) from error
    except OSError as error:
        raise DatalistError(
            f"{path}: cannot be read ({error.strerror or error}); check the name."
        ) from error
    if not content.strip():
        raise DatalistError(f"{path}: is empty; download or export it again.")
    for head, what in _FOREIGN_CONTENT:
        if content.lstrip()[: len(head)].lower() == head.lower():
            raise DatalistError(f"{path}: is {what}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DatalistError(
            f"{path}: line {line} is not text in UTF-8; save the table as CSV in UTF-8."
        ) from error


def read_table(
    path: Path,
    required: Sequence[str],
    filled: Sequence[str] = (),
    unique: str = "",
    images: Path | None = None,
) -> Table:
    """
    Read a label file with a header line.

    Args:
        path: the file.
        required: columns that must be there.
        filled: columns without empty cells.
        unique: column in which no value occurs twice.
        images: their folder, where the command has options for the names of the columns.
    """
    lines = _read_lines(path, required)
    header = lines.pop(next(iter(lines)))
    while header and not header[-1]:
        header.pop()
    _require_columns(path, header, required, images)
    table = Table(path, _cells(header, lines))
    _refuse_ragged(table, header, lines)
    if not lines:
        raise DatalistError(f"{path}: has a header but no rows; export the table again.")
    if filled:
        table.require_cells(*filled)
    if unique:
        table.require_unique(unique)
    return table


def _read_lines(path: Path, required: Sequence[str]) -> dict[int, list[str]]:
    """Cells of each line of a CSV file, by its number; without empty ones, and one that states the delimiter."""
    text = read_text(path)
    stated = _STATED_DELIMITER.match(text)
    delimiter = stated[1] if stated else _delimiter(text, required)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    lines: dict[int, list[str]] = {}
    try:
        for row in reader:
            states = stated is not None and reader.line_num == 1
            if any(row) and not states:
                lines[reader.line_num] = [cell.strip() for cell in row]
    except csv.Error as error:
        fault = f"line {reader.line_num} is not valid CSV ({error}); correct the quotes."
        raise DatalistError(f"{path}: {fault}") from error
    return lines


def _cells(header: Sequence[str], lines: Mapping[int, Sequence[str]]) -> pd.DataFrame:
    """Rows as long as the header; of columns of the same name the first."""
    width = len(header)
    padded = [[*row[:width], *[""] * (width - len(row))] for row in lines.values()]
    cells = pd.DataFrame(padded, columns=header, index=list(lines))
    return cells.loc[:, ~cells.columns.duplicated()]


def _refuse_ragged(table: Table, header: Sequence[str], lines: Mapping[int, Sequence[str]]) -> None:
    """Refuse rows with fewer cells than the header, or with filled ones beyond it."""
    width = len(header)
    ragged = (
        (line, f"{len(row)} cells")
        for line, row in lines.items()
        if len(row) < width or any(row[width:])
    )
    reason = f"there are not {width} cells, as in the header,"
    table.refuse(ragged, reason, "add or remove separators, or quote cells")


def _require_columns(
    path: Path, header: Sequence[str], required: Sequence[str], images: Path | None
) -> None:
    """Refuse a table without some columns, with what to do about it."""
    absent = [name for name in required if name not in header]
    if not absent:
        return
    what, meant = f"columns {', '.join(map(repr, absent))} are", ""
    if len(absent) == 1:
        what, meant = f"column {absent[0]!r} is", did_you_mean(absent[0], header)
    remedy = "Rename them, or export the table again."
    if images is not None:
        remedy = "monai-afire data table makes a datalist of it."
    found = ", ".join(header) or "none"
    raise DatalistError(f"{path}: {what} missing; columns found: {found}{meant or '.'} {remedy}")


def _delimiter(text: str, required: Sequence[str]) -> str:
    """What separates the header into the required columns; of several the one that is there most often."""
    unquoted = _QUOTED.sub("", text.lstrip()[:_HEADER_CHARACTERS]).split("\n", 1)[0]

    def fit(delimiter: str) -> tuple[int, int]:
        cells = next(csv.reader(io.StringIO(text.lstrip(), newline=""), delimiter=delimiter))
        names = {cell.strip() for cell in cells}
        return len(names & set(required)), unquoted.count(delimiter)

    return max(",;\t|", key=fit)  # the comma, being first, if there is none


def read_name_list(path: Path) -> list[str]:
    """Names in a file with one of them on each line."""
    return [name for line in read_text(path).splitlines() if (name := line.strip())]


def read_json_array(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Objects of a JSON file that holds an array of them."""
    content = parse_json(read_text(path), path, "download it again")
    if not isinstance(content, list) or not content:
        raise DatalistError(f"{path}: is not an array with objects in it; download it again.")
    for number, entry in enumerate(content):
        absent = [key for key in keys if not isinstance(entry, dict) or key not in entry]
        if absent:
            raise DatalistError(
                f"{path}: item {number} lacks {', '.join(map(repr, absent))}; download the file again."
            )
    return content
