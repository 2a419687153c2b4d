# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a terminal shows of an error at the end of a process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest
from monai.bundle import ConfigParser
from tqdm.auto import tqdm

from monai_afire.apps.runs import show_cause_last
from monai_afire.networks import load_network


def shown(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], object]) -> list[str]:
    """Lines that an uncaught error leaves at the terminal."""
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    show_cause_last()
    bar = tqdm(total=3, file=terminal)
    try:
        fail()
    except Exception:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    bar.close()  # as when the interpreter ends
    return terminal.getvalue().strip().splitlines()


def parse(expression: str) -> Callable[[], object]:
    config = {"imports": ["$import monai_afire"], "value": f"${expression}"}
    return lambda: ConfigParser(config).get_parsed_content("value")


MISSING = "monai_afire.networks.load_network(None, 'no/model.pt', 'train first')"


def test_the_cause_is_the_last_line_and_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for fail in (parse(MISSING), lambda: load_network(None, "no/model.pt", "train first")):  # type: ignore[arg-type]
        lines = shown(monkeypatch, fail)
        assert lines[-1].startswith("The cause: there are no weights no/model.pt")
        assert "--bundle_root" in lines[-1]
        assert not any(line.startswith("Traceback") for line in lines)
        assert len(lines) < 8
        assert "MONAI_AFIRE_TRACEBACK=1" in lines[-3]


def test_the_traceback_is_there_for_who_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONAI_AFIRE_TRACEBACK", "1")
    lines = shown(monkeypatch, parse(MISSING))
    assert any(line.startswith("Traceback") for line in lines)
    assert lines[-1].startswith("The cause: there are no weights")


@pytest.mark.parametrize(
    "expression",
    [
        "monai_afire.utils.files.output_path(3, 4, 5, 6)",
        "1 / 0",
        "monai_afire.apps.runs.bundle_root()",
        "monai_afire.utils.text.first_few(3)",  # within this package, but not by a raise
    ],
)
def test_faults_in_the_code_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    assert any(line.startswith("Traceback") for line in shown(monkeypatch, parse(expression)))
