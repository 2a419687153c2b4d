# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Another process that writes into a folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from monai_afire.utils.folder_lock import folder_lock

__all__ = ["holding_process"]

# imports the one module by its file: the package takes seconds to import
_SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("lock", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with module.folder_lock(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding_process(folder: Path) -> Iterator[subprocess.Popen]:
    """A process that holds the lock of a folder until it is killed, or the context ends."""
    module = sys.modules[folder_lock.__module__].__file__
    arguments = [sys.executable, "-c", _SCRIPT, str(module), str(folder)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
