# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A signal before the first batch, or where there are no batches, ends a run in words, with what to type next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bundles.bundle_runs import environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends other signals")

COMMAND = "import sys; sys.argv = ['monai/bundle/__main__.py', 'run', '--config_file', 'a.json']"
STOP = "from monai_afire.apps.runs.early_stop import stop_early; import os, signal; stop_early()"
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


@pytest.mark.slow
def test_after_something_is_written_the_run_is_resumed_by_its_name(tmp_path: Path) -> None:
    write = "open('runs/mine/first/note.txt', 'w').close()"
    done = run_code(tmp_path, COMMAND, STOP, FOLDER, write, kill("SIGTERM"))
    assert done.returncode == 143
    assert done.stderr.strip().endswith("--config_file a.json --name first --resume True")


@pytest.mark.slow
def test_other_programs_keep_their_own_way(tmp_path: Path) -> None:
    done = run_code(tmp_path, STOP, kill("SIGINT"))
    assert "KeyboardInterrupt" in done.stderr
    assert run_code(tmp_path, STOP, kill("SIGTERM")).returncode == -15


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_in_a_line(tmp_path: Path) -> None:
    done = run_code(
        tmp_path,
        "from monai_afire.apps.runs.process_end import show_cause_last; show_cause_last('go on so')",
        "raise KeyboardInterrupt",
    )
    assert done.returncode != 0
    assert done.stderr.strip().splitlines() == ["go on so"]
