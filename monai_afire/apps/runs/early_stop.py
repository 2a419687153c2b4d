# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Signals outside of a run's batches, such as while images are read: they end it in words, with what to type next."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from types import FrameType

from monai_afire.apps.runs.command_line import given_options
from monai_afire.apps.runs.follow_up import go_on_line
from monai_afire.apps.runs.process_end import close_bars
from monai_afire.apps.runs.run_folder import used_folder
from monai_afire.utils.distributed import global_rank, is_launched
from monai_afire_cli.interrupts import INTERRUPTED_EXIT_CODE, NOTHING_WRITTEN, STOPPED_EXIT_CODE

__all__ = ["stop_early"]

_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


def stop_early() -> None:
    """
    Let SIGUSR1 end a run that has nothing to save yet as it ends a training: by exit code 143, in words.

    A command of MONAI's lets SIGTERM and Ctrl-C do the same; the latter has code 130. Other programs, and notebooks,
    keep their own way. A training takes the signals over when it starts. A handler that is there already stays.

    Example:
        >>> stop_early()
    """
    names = ["SIGUSR1"]
    if given_options():
        # a process that waits for others would not see a handler of Python: torchrun's SIGTERM ends it
        names += ["SIGINT"] if is_launched() else ["SIGINT", "SIGTERM"]
    if threading.current_thread() is not threading.main_thread():
        return
    for number in [getattr(signal, name, None) for name in names]:  # Windows has no SIGUSR1
        if number is not None and signal.getsignal(number) in _DEFAULTS:
            signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    if global_rank() == 0 and multiprocessing.parent_process() is None:
        close_bars()
        text = f"\nstopped by {signal.Signals(number).name}{_how_to_go_on()}\n"
        os.write(2, text.encode())  # print is not safe here
    raise SystemExit(INTERRUPTED_EXIT_CODE if number == signal.SIGINT else STOPPED_EXIT_CODE)


def _how_to_go_on() -> str:
    folder = used_folder()
    return NOTHING_WRITTEN if folder is None else f"\n{go_on_line(folder.name)}"
