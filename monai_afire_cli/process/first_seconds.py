# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
``python -m monai_afire_cli.process.first_seconds MODULE WORD ...``: a module that a signal ends in a line.

A command says by itself how it was stopped, but only once it is loaded, which takes seconds: until then, Ctrl-C would
print a traceback of whatever was being imported.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from monai_afire_cli.process.interrupts import (
    INTERRUPTED_EXIT_CODE,
    EarlyStop,
    exit_code_behind,
    is_interrupt_behind,
    release_interrupts,
    stopped_line,
)

_MONAI_BUNDLE = "monai.bundle"


def main(words: Sequence[str]) -> int:
    """Run the module. One that has a way of its own to show errors (``sys.excepthook``) gets the interrupt itself."""
    module = words[0]
    try:
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, EarlyStop(module == _MONAI_BUNDLE))
        release_interrupts()
        # it stays when the module has ended by an error, whose message may show the command
        sys.argv = [_file_of(module), *words[1:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit:
        raise
    except BaseException as error:
        stopped = exit_code_behind(error)
        if stopped is not None:
            return stopped
        if sys.excepthook is not sys.__excepthook__ or not is_interrupt_behind(error):
            raise
        os.write(2, f"\n{stopped_line(module == _MONAI_BUNDLE)}\n".encode())
        return INTERRUPTED_EXIT_CODE
    return 0


def _file_of(module: str) -> str:
    """The file that ``python -m`` runs."""
    found = find_spec(module)
    if found is not None and found.submodule_search_locations is not None:
        found = find_spec(f"{module}.__main__")
    return str(found.origin) if found else module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
