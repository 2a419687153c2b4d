# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a terminal shows at the end of a process: of an error, of a fault of the machine, and of a signal."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bundles.bundle_runs import environment
from monai.bundle import ConfigParser
from monai_afire.apps.runs import show_cause_last
from monai_afire.apps.runs.process_end import hint_for
from tqdm.auto import tqdm

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


SIGNALS = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends other signals")

COMMAND = "import sys; sys.argv = ['monai/bundle/__main__.py', 'run', '--config_file', 'a.json']"
STOP = "from monai_afire.apps.runs.process_end import stop_early; import os, signal; stop_early()"
# a shell starts what is in the background, such as all tests, with Ctrl-C ignored
CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
FOLDER = "from monai_afire.apps.runs import run_folder; run_folder('mine', 'fit', 'first')"


def run_code(folder: Path, *lines: str) -> subprocess.CompletedProcess:
    """In a process of its own."""
    command = [sys.executable, "-c", "\n".join([CTRL_C, *lines])]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=folder, env=environment()
    )


def kill(name: str) -> str:
    return f"os.kill(os.getpid(), signal.{name})"


@pytest.mark.parametrize(("name", "code"), [("SIGUSR1", 143), ("SIGTERM", 143), ("SIGINT", 130)])
@SIGNALS
@pytest.mark.slow
def test_before_anything_is_written_the_same_command_is_right(
    tmp_path: Path, name: str, code: int
) -> None:
    done = run_code(tmp_path, COMMAND, STOP, FOLDER, kill(name))
    assert done.returncode == code
    [line] = done.stderr.strip().splitlines()
    assert f"stopped by {name} before" in line
    assert "same command" in line
    assert not (tmp_path / "runs/mine/first").exists()  # so its name is free


@SIGNALS
@pytest.mark.slow
def test_after_something_is_written_the_run_is_resumed_by_its_name(tmp_path: Path) -> None:
    write = "open('runs/mine/first/note.txt', 'w').close()"
    early = "import signal; from monai_afire_cli.process.interrupts import EarlyStop"
    before = "signal.signal(signal.SIGTERM, EarlyStop(is_run=True))"  # while all was loaded
    done = run_code(tmp_path, early, before, COMMAND, STOP, FOLDER, write, kill("SIGTERM"))
    assert done.returncode == 143
    assert done.stderr.strip().endswith("--config_file a.json --name first --resume True")


@SIGNALS
@pytest.mark.slow
def test_other_programs_keep_their_own_way(tmp_path: Path) -> None:
    done = run_code(tmp_path, STOP, kill("SIGINT"))
    assert "KeyboardInterrupt" in done.stderr
    assert run_code(tmp_path, STOP, kill("SIGTERM")).returncode == -15


@SIGNALS
@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_in_a_line(tmp_path: Path) -> None:
    done = run_code(
        tmp_path,
        "from monai_afire.apps.runs.process_end import show_cause_last; show_cause_last('go on so')",
        "raise KeyboardInterrupt",
    )
    assert done.returncode != 0
    assert done.stderr.strip().splitlines() == ["go on so"]
