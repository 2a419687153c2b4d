# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The tests that are marked for a GPU, with their outcomes among the results."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

from tests.benchmarks.gpu_suite.results import Deadline, Results

__all__ = ["outcomes", "run_checks"]

PATHS = ("tests/gpu", "tests/bundles/test_training_options.py")
SHARE = 0.4  # of the time that is left
_OUTCOME = re.compile(r"::(\S+) (PASSED|FAILED|SKIPPED|ERROR)")
_REASON = re.compile(r"^(?:FAILED|ERROR) \S+::(\S+) - (.*)$", re.MULTILINE)


def run_checks(options: argparse.Namespace, results: Results, deadline: Deadline) -> None:
    """
    Run the tests in a process of their own, so that nothing they break reaches the other stages.

    Args:
        options: `device` and `out` of the suite.
        results: get a row for each test that has ended; the whole output is in ``checks.log``.
        deadline: of which the tests get a share.
    """
    device = str(options.device).split(":")[0]
    paths = PATHS if device == "cuda" else PATHS[:1]
    chosen = "gpu" if options.size == "paper" else "gpu and not slow"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-v",
        "-rfE",
        "--tb=short",
        "-m",
        chosen,
        *paths,
    ]
    log = options.out / "checks.log"
    with log.open("w", encoding="utf-8") as file:
        environment = os.environ | {"MONAI_AFIRE_TEST_DEVICE": device, "COLUMNS": "300"}
        seconds = max(1, SHARE * deadline.left)
        try:
            code: int | str = subprocess.run(
                command, env=environment, stdout=file, stderr=file, timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = "out of time"
    results.add("checks", "exit code of pytest", code)
    for name, outcome in outcomes(log.read_text(encoding="utf-8")).items():
        results.add("checks", name, outcome)


def outcomes(log: str) -> dict[str, str]:
    """
    What became of each test by the words of ``pytest -v -rfE``.

    Example:
        >>> outcomes("tests/a.py::test_b[0] PASSED [50%]\\ntests/a.py::test_c FAILED\\nFAILED tests/a.py::test_c - no")
        {'test_b[0]': 'passed', 'test_c': 'failed: no'}
    """
    found = {name: outcome.lower() for name, outcome in _OUTCOME.findall(log)}
    for name, reason in _REASON.findall(log):
        found[name] = f"failed: {reason[:200]}"
    return found
