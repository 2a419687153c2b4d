# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

import subprocess
import sys

import pytest


def run_code(code: str) -> subprocess.CompletedProcess:
    """In a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGUSR1")
@pytest.mark.slow
def test_a_warning_before_the_training_ends_as_a_stopped_run() -> None:
    code = (
        "import os, signal; from monai_afire.apps.runs.check import stop_early; stop_early();"
        "os.kill(os.getpid(), signal.SIGUSR1)"
    )
    done = run_code(code)
    assert done.returncode == 143
    assert "stopped by SIGUSR1" in done.stderr


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_in_a_line() -> None:
    code = (
        "from monai_afire.apps.runs.process_end import show_cause_last; show_cause_last('go on so');"
        "raise KeyboardInterrupt"
    )
    done = run_code(code)
    assert done.returncode != 0
    assert done.stderr.strip().splitlines() == ["go on so"]
