# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A cluster's warning that comes before the training has begun."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

__all__ = ["stop_early"]

_STOPPED = 143  # as of a training that a signal stops


def stop_early() -> None:
    """
    Let SIGUSR1 end a run that has nothing to save yet as it ends a training: by exit code 143, in words.

    A training takes the signal over when it starts. A handler that is there already stays.

    Example:
        >>> stop_early()
    """
    number = getattr(signal, "SIGUSR1", None)  # Windows has none
    is_main = threading.current_thread() is threading.main_thread()
    if number is not None and is_main and signal.getsignal(number) is signal.SIG_DFL:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    print(f"stopped by {signal.Signals(number).name} before the run began: nothing was saved", file=sys.stderr)
    raise SystemExit(_STOPPED)
