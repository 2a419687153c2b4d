# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What the suite has found so far, on disk at every moment, and how much time is left."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["Deadline", "Results"]


class Deadline:
    """
    Time that is left.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, negative once it has passed."""
        return self.end - time.monotonic()


class Results:
    """
    Figures by section and name, written after each one.

    Args:
        folder: of ``results.json`` and ``results.md``; what an earlier run left there is kept.
        about: what holds for all of them.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.path = folder / "results.json"
        self.sections: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            self.sections = json.loads(self.path.read_text(encoding="utf-8"))
        self.sections["about"] = dict(about)
        self._write()

    def add(self, section: str, name: str, value: Any) -> None:
        """Record a figure, or a row of them, and show it."""
        self.sections.setdefault(section, {})[name] = value
        print(f"{section}: {name}: {value}", flush=True)
        self._write()

    def _write(self) -> None:
        self.path.write_text(json.dumps(self.sections, indent=2), encoding="utf-8")
        self.path.with_suffix(".md").write_text(
            "\n".join(map(self._table, self.sections)), encoding="utf-8"
        )

    def _table(self, section: str) -> str:
        """A section as a table; rows that are dictionaries have a column per key."""
        rows = {
            n: v if isinstance(v, dict) else {"value": v} for n, v in self.sections[section].items()
        }
        columns = list(dict.fromkeys(key for row in rows.values() for key in row))
        table = pd.DataFrame(rows).T.reindex(columns=columns).fillna("")
        lines = ["| | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 1)]
        lines += [
            f"| {name} | " + " | ".join(map(str, row)) + " |" for name, row in table.iterrows()
        ]
        return f"## {section}\n\n" + "\n".join(lines) + "\n"
