# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Label files as they are published or come out of a spreadsheet: found, unpacked, read, and refused line by line."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from monai_afire.data.datalist.checks import DatalistError, parse_json
from monai_afire.utils.text import first_few

__all__ = ["Table", "find_label_file", "first_few", "read_json_array", "read_name_list", "read_table", "read_text"]

Value = TypeVar("Value")

_FOREIGN_CONTENT = (
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet file; unpack it, or save it as CSV"),
    (b"<!doctype", "a web page, not a table; the download failed, log in and download it again"),
    (b"<html", "a web page, not a table; the download failed, log in and download it again"),
)


@dataclass(frozen=True)
class Table:
    """
    Rows of a label file with the number of the line that each of them came from.

    Args:
        path: the file, for messages.
        names: names of the columns.
        rows: cells of each row, at least as many as names.
        lines: number of the line of each row, from 1.
    """

    path: Path
    names: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[str]:
        """Cells of one column, without blanks around them."""
        index = self.names.index(name)
        return [row[index].strip() for row in self.rows]

    def refuse(self, wrong: Iterable[int | tuple[int, str]], reason: str, remedy: str) -> None:
        """
        Refuse the table if any of its rows is wrong.

        Args:
            wrong: numbers of the wrong rows, from 0, or pairs of them and what was observed there.
            reason: what is wrong.
            remedy: what to do.

        Raises:
            DatalistError: When there is a wrong row; the message names the file and the first few lines.
        """
        lines = [
            f"line {self.lines[row]}" if isinstance(row, int) else f"line {self.lines[row[0]]} ({row[1]})"
            for row in wrong
        ]
        if lines:
            raise DatalistError(f"{self.path}: {reason} in {first_few(lines)}; {remedy}.")

    def require_cells(self, *names: str) -> None:
        """
        Refuse empty cells in some columns.

        Raises:
            DatalistError: When there is one; the message names lines and columns.
        """
        empty = [(row, name) for name in names for row, cell in enumerate(self.column(name)) if not cell]
        self.refuse(sorted(empty), "empty cells", "fill them in, or delete the rows")

    def require_unique(self, name: str) -> None:
        """
        Refuse a column that has the same value twice.

        Raises:
            DatalistError: When there is one; the message names value and line of the repetition.
        """
        seen: set[str] = set()
        twice: list[tuple[int, str]] = []
        for row, cell in enumerate(self.column(name)):
            if cell in seen:
                twice.append((row, cell))
            seen.add(cell)
        self.refuse(twice, f"{name} is repeated", "each may occur once: delete the repeated rows")

    def values(self, name: str, accepted: Mapping[str, Value]) -> list[Value]:
        """
        Cells of a column that must hold one of a few texts.

        Args:
            name: the column.
            accepted: value of each text.

        Returns:
            The values.

        Raises:
            DatalistError: When a cell holds anything else; the message names lines and accepted texts.
        """
        cells = self.column(name)
        wrong = [(row, repr(cell)) for row, cell in enumerate(cells) if cell not in accepted]
        texts = ", ".join(text or "empty" for text in accepted)
        self.refuse(wrong, f"{name} has unknown values", f"accepted: {texts}")
        return [accepted[cell] for cell in cells]

    def numbers(self, name: str) -> list[float]:
        """
        Cells of a column that must hold finite numbers.

        Raises:
            DatalistError: When one does not; the message names lines and cells.
        """
        cells = self.column(name)
        parsed = [_number(cell) for cell in cells]
        wrong = [(row, repr(cells[row])) for row, number in enumerate(parsed) if number is None]
        self.refuse(wrong, f"{name} is not a number", "correct the cells")
        return [number for number in parsed if number is not None]


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def find_label_file(folder: Path, patterns: Sequence[str], purpose: str, required: bool = True) -> Path | None:
    """
    Find a label file in a folder or in one of its direct subfolders, plain or compressed with gzip.

    Args:
        folder: where to search.
        patterns: file name patterns; the first one that matches anything decides.
        purpose: what the file holds, for messages.
        required: whether to raise if there is none.

    Returns:
        The file; a plain one is preferred to its compressed twin. None if there is none.

    Raises:
        DatalistError: When a required file is missing, or several files match.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "test_list.txt.gz").touch()
        >>> find_label_file(folder, ["test_list*.txt"], "official split").name
        'test_list.txt.gz'
    """
    for pattern in patterns:
        for prefix in ("", "*/"):
            found = set(folder.glob(prefix + pattern))
            found |= {path.with_suffix("") for path in folder.glob(f"{prefix}{pattern}.gz")}
            if len(found) > 1:
                names = first_few(sorted(path.relative_to(folder) for path in found))
                raise DatalistError(f"{folder}: several files hold the {purpose}: {names}; keep one, or set --labels.")
            if found:
                [path] = found
                return path if path.exists() else path.with_name(path.name + ".gz")
    if not required:
        return None
    looked_for = " or ".join(patterns)
    raise DatalistError(f"{folder}: no file {looked_for} ({purpose}); put it there, or set --labels to its folder.")


def read_text(path: Path) -> str:
    """
    Text of a label file, unpacked if its content is gzip whatever its name, without byte-order mark.

    Raises:
        DatalistError: When the file is missing, empty, damaged, or no text in UTF-8.
    """
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatalistError(f"{path}: is damaged gzip data ({error}); download it again.") from error
    except OSError as error:
        raise DatalistError(f"{path}: cannot be read ({error.strerror or error}); check the name.") from error
    if not content.strip():
        raise DatalistError(f"{path}: is empty; download or export it again.")
    for head, what in _FOREIGN_CONTENT:
        if content.lstrip()[: len(head)].lower() == head.lower():
            raise DatalistError(f"{path}: is {what}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DatalistError(f"{path}: line {line} is not text in UTF-8; save the table as CSV in UTF-8.") from error


def read_table(path: Path, required: Sequence[str]) -> Table:
    """
    Read a label file with a header line.

    Comma, semicolon or tab separate the cells, as the header shows; byte-order mark, CRLF, blank lines, quotes and
    nameless empty columns at the end, as some published files have, are taken.

    Args:
        path: the file.
        required: names of the columns that it must have, in any order; others may be there.

    Returns:
        The table.

    Raises:
        DatalistError: When the file cannot be read, a column is missing, rows are ragged or there are none.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = path.write_text("image;label\\na.png;1\\n")
        >>> read_table(path, ["image", "label"]).column("label")
        ['1']
    """
    text = read_text(path)
    rows, lines = [], []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        for row in reader:
            if any(row):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DatalistError(
            f"{path}: line {reader.line_num} is not valid CSV ({error}); correct the quotes."
        ) from error
    header = [name.strip() for name in rows[0]]
    while header and not header[-1]:
        header.pop()
    table = Table(path, tuple(header), rows[1:], lines[1:])
    if absent := [name for name in required if name not in header]:
        what = f"column {absent[0]!r} is" if len(absent) == 1 else f"columns {', '.join(map(repr, absent))} are"
        found = ", ".join(header) or "none"
        raise DatalistError(f"{path}: {what} missing; columns found: {found}. Rename them, or export the table again.")
    width = len(header)
    ragged = [(n, f"{len(row)} cells") for n, row in enumerate(table.rows) if len(row) < width or any(row[width:])]
    table.refuse(ragged, f"there are not {width} cells, as in the header,", "add or remove separators, or quote cells")
    if not table.rows:
        raise DatalistError(f"{path}: has a header but no rows; export the table again.")
    return table


def _delimiter(text: str) -> str:
    header = text.lstrip().split("\n", 1)[0]
    return max(",;\t", key=header.count)  # the comma, being first, if there is none


def read_name_list(path: Path) -> list[str]:
    """
    Names in a file with one of them on each line.

    Raises:
        DatalistError: When the file cannot be read.
    """
    return [name for line in read_text(path).splitlines() if (name := line.strip())]


def read_json_array(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    """
    Objects of a JSON file that holds an array of them.

    Args:
        path: the file.
        keys: keys that each object must have.

    Returns:
        The objects.

    Raises:
        DatalistError: When the file cannot be read, is not such an array, or an object lacks a key.
    """
    content = parse_json(read_text(path), path, "download it again")
    if not isinstance(content, list) or not content:
        raise DatalistError(f"{path}: is not an array with objects in it; download it again.")
    for number, entry in enumerate(content):
        absent = [key for key in keys if not isinstance(entry, dict) or key not in entry]
        if absent:
            raise DatalistError(f"{path}: item {number} lacks {', '.join(map(repr, absent))}; download the file again.")
    return content
