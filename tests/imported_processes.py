# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Processes that start with MONAI imported, which takes longer than many a test: one server imports it for all of them.

The server is started before any test has changed anything, and forks a process for each call: nothing of one reaches
another, nor the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch.multiprocessing as mp

multiprocessing.set_forkserver_preload(["monai.bundle", "monai_afire"])


def start_ranks(
    function: Callable[..., None], *arguments: object, count: int = 2
) -> mp.ProcessContext:
    """As ``torch.multiprocessing.spawn`` of ``function(rank, *arguments)``, without waiting."""
    return mp.start_processes(function, arguments, count, join=False, start_method="forkserver")


def run_python(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess:
    """As ``subprocess.run`` of ``python`` with these words (``-m module ...`` or a script), with the output as text."""
    with tempfile.TemporaryDirectory() as outputs:
        files = [Path(outputs, name) for name in ("stdout", "stderr")]
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=_run, args=(words, folder, dict(variables), files))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(
                list(words), timeout, *(file.read_bytes() for file in files)
            )
        stdout, stderr = (file.read_text(encoding="utf-8") for file in files)
    return subprocess.CompletedProcess(list(words), process.exitcode, stdout, stderr)


def _run(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], files: Sequence[Path]
) -> None:
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    is_module = words[0] == "-m"
    sys.argv = list(words[is_module:])
    sys.path.insert(0, str(folder) if is_module else str(Path(words[0]).parent))
    run = runpy.run_module if is_module else runpy.run_path
    try:
        run(words[is_module], run_name="__main__", **({"alter_sys": True} if is_module else {}))
    except Exception:  # as the interpreter ends, whose hook the bundles replace
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
