# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tables of a run that was stopped, to be gone on with."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

__all__ = ["UnfinishedTable", "check_same_row", "written_name"]

_TOLERANCE = 0.01  # relative; batches of another size change the last digits, reduced precision a few


def written_name(source: str) -> str:
    """
    How a table names a file: names need not be valid text.

    Args:
        source: name of a file.

    Returns:
        The name as it is read from the table.

    Example:
        >>> written_name("caf\\udce9.png")
        'caf\\\\udce9.png'
    """
    return source.encode("utf-8", "backslashreplace").decode()


class UnfinishedTable:
    """
    A table of results, one or more successive rows per image, that ends where its run was stopped: maybe within a row.

    The rows of the last two images are to be made anew: the very last may be incomplete, and those before it show
    whether the run that goes on has the same weights and settings. The file is read anew each time, row by row.

    Args:
        path: the CSV file; one that does not exist is empty.
        header: titles of the columns.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = path.write_text("image,score\\na.png,0.5\\nb.png,0.25\\nc.png,0.")
        >>> table = UnfinishedTable(path, ["image", "score"])
        >>> list(table.complete_rows()), table.last_complete()
        ([['a.png', '0.5']], [['b.png', '0.25']])
    """

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self.path = path
        self.header = list(header)

    def complete_rows(self) -> Iterator[list[str]]:
        """
        Rows of all images but the last two.

        Raises:
            ValueError: when the file has other columns.
        """
        held_back: list[list[list[str]]] = []
        for rows in self._images():
            held_back.append(rows)
            if len(held_back) > 2:
                yield from held_back.pop(0)

    def last_complete(self) -> list[list[str]]:
        """Rows of the last image but one, none where there is none."""
        held_back: list[list[list[str]]] = []
        for rows in self._images():
            held_back = [*held_back[-1:], rows]
        return held_back[0] if len(held_back) == 2 else []

    def names(self) -> set[str]:
        """Images that need not be judged again."""
        return {row[0] for row in self.complete_rows()}

    def _images(self) -> Iterator[list[list[str]]]:
        if not self.path.is_file():
            return
        with self.path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = csv.reader(file)
            header, first = next(rows, []), next(rows, None)
            if first is None:
                return  # stopped within the header, or just after it
            if header != self.header:
                raise ValueError(
                    f"{self.path} has the columns {header}, not {self.header}: resume with the settings of the run "
                    "that wrote it, or start anew with resume set to false"
                )
            for _, image in groupby(chain([first], rows), key=lambda row: row[:1]):
                yield list(image)


def check_same_row(expected: Sequence[str], found: Sequence[Any], path: Path) -> None:
    """
    Compare a row that was made anew with the one that a run had written before.

    Args:
        expected: cells in the file.
        found: the cells made anew.
        path: the table, for the message.

    Raises:
        RuntimeError: when they differ by more than rounding.

    Example:
        >>> check_same_row(["a.png", "0.5"], ["a.png", "0.5001"], Path("scores.csv"))
    """
    if not all(map(_is_same, expected, map(str, found))):
        raise RuntimeError(
            f"{path} has {list(expected)}, but now the result is {[str(cell) for cell in found]}: other weights or "
            "settings made it. Resume with those, or start anew with resume set to false"
        )


def _is_same(expected: str, found: str) -> bool:
    try:
        return math.isclose(float(expected), float(found), rel_tol=_TOLERANCE, abs_tol=1e-4)
    except ValueError:
        return expected == written_name(found)
