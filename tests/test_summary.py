# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The tests themselves: their summary, and names of files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from conftest import SHARED_IS_MISSING, pytest_terminal_summary


def test_what_is_skipped_without_shared_is_named() -> None:
    lines: list[str] = []
    reasons = {
        "a.py::test_x[1]": SHARED_IS_MISSING,
        "a.py::test_x[2]": SHARED_IS_MISSING,
        "b.py::test_y": "no GPU",
    }
    reasons["b.py::test_z"] = SHARED_IS_MISSING
    reports = [
        SimpleNamespace(nodeid=name, longrepr=("file", 1, f"Skipped: {why}"))
        for name, why in reasons.items()
    ]
    reporter: Any = SimpleNamespace(
        stats={"skipped": reports}, section=lines.append, write_line=lines.append
    )
    pytest_terminal_summary(reporter)
    assert lines == [SHARED_IS_MISSING, "a.py::test_x (2 cases)", "b.py::test_z"]
    lines.clear()
    reporter.stats = {}
    pytest_terminal_summary(reporter)
    assert lines == []


def test_names_of_test_files_occur_once() -> None:
    """Folders of tests are no packages, so pytest takes two files of a name for one module."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
