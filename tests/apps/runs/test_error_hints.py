# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Faults of the machine come with what to do about them."""

from __future__ import annotations

import errno
import sys

import pytest

from monai_afire.apps.runs import show_cause_last
from monai_afire.apps.runs.error_hints import hint_for


def test_the_remedy_is_printed_below_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *args: None)
    show_cause_last()
    for error in (
        RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
        KeyError("x"),
    ):
        sys.excepthook(type(error), error, None)
    printed = capsys.readouterr().err
    assert printed.count("What happened: the operating system has ended a loader process") == 1
    for word in ("memory", "--num_workers", "--cache none", "--resume True"):
        assert word in printed


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (
            RuntimeError(
                "DataLoader worker (pid 3) is killed by signal: Bus error. It is possible that"
            ),
            "--shm-size",
        ),
        (
            RuntimeError("unable to write to file </torch_1_2>: No space left, /dev/shm"),
            "--shm-size",
        ),
        (RuntimeError("DataLoader worker (pid(s) 3, 4) exited unexpectedly"), "--num_workers"),
        (
            RuntimeError("InvalidCxxCompiler: No working C++ compiler found in cpp.cxx"),
            "without --train::trainer::compile",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "events"), "disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "quota"),
    ],
)
def test_remedies(error: Exception, word: str) -> None:
    assert word in (hint_for(error) or "")
    outer = ValueError("in a config")
    outer.__cause__ = error
    assert hint_for(outer) == hint_for(error)


@pytest.mark.parametrize(
    "error", [ValueError("worker exited unexpectedly"), OSError(errno.ENOENT, "gone"), KeyError()]
)
def test_other_errors_get_no_advice(error: Exception) -> None:
    assert hint_for(error) is None


def test_a_full_disk_is_no_matter_of_training_alone() -> None:
    hint = hint_for(OSError(errno.ENOSPC, "No space left on device", "scores.csv")) or ""
    assert "checkpoint" not in hint
    for words in ("--output_dir", "in training also --ckpt_dir", "--resume True"):
        assert words in hint
