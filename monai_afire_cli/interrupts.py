# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Ctrl-C before a command can answer it: what is said, and how it waits while one process becomes another program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "INTERRUPTED",
    "NOTHING_WRITTEN",
    "exit_code_behind",
    "hold_interrupts",
    "release_interrupts",
    "stopped_line",
]

INTERRUPTED = 130
"""128 + SIGINT, as a shell says of a program that Ctrl-C ended."""
NOTHING_WRITTEN = " before this run wrote anything: the same command starts it again"
"""Said after the signal that stopped the run of a bundle."""

_STOPPED = {INTERRUPTED, 143}  # the latter of SIGTERM and SIGUSR1
_CAN_HOLD = hasattr(signal, "pthread_sigmask")  # not on Windows


def stopped_line(is_run: bool) -> str:
    """
    What is said after Ctrl-C.

    Args:
        is_run: of a bundle, which has not begun.

    Example:
        >>> stopped_line(is_run=False)
        'stopped by SIGINT'
    """
    return f"stopped by SIGINT{NOTHING_WRITTEN if is_run else ''}"


def exit_code_behind(error: BaseException | None) -> int | None:
    """
    The exit code of a stop that has been said already, and that was wrapped into another error on its way.

    ``pydoc``, by which MONAI finds what a config names, makes an error of its own of whatever ends an import.

    Args:
        error: that ends the process.

    Returns:
        130 or 143; None for another error.

    Example:
        >>> exit_code_behind(ImportError("no such module")) is None, exit_code_behind(SystemExit(143))
        (True, 143)
    """
    while error is not None:
        if isinstance(error, SystemExit) and error.code in _STOPPED:
            return int(error.code)
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """
    Let Ctrl-C wait. A program that the process becomes meanwhile lets it through by :func:`release_interrupts`.

    Example:
        >>> with hold_interrupts():
        ...     pass
    """
    if not _CAN_HOLD:
        yield
        return
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def release_interrupts() -> None:
    """
    Let Ctrl-C through, one that waits at once.

    Example:
        >>> release_interrupts()
    """
    if _CAN_HOLD:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
