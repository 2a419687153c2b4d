# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A stop by a signal: its exit codes, what is said before a command can, and how Ctrl-C waits for another program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "INTERRUPTED_EXIT_CODE",
    "NOTHING_WRITTEN",
    "STOPPED_EXIT_CODE",
    "exit_code_behind",
    "hold_interrupts",
    "is_interrupt_behind",
    "release_interrupts",
    "stopped_line",
]

STOPPED_EXIT_CODE = 143
"""128 + SIGTERM, as a shell reports it: not 0, so that no scheduler takes a stopped run for a finished one."""
INTERRUPTED_EXIT_CODE = 130
"""128 + SIGINT: Ctrl-C."""
NOTHING_WRITTEN = " before this run wrote anything: the same command starts it again"
"""Said after the signal that stopped the run of a bundle."""

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
    for each in _wrapped(error):
        if isinstance(each, SystemExit) and each.code in (STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE):
            return int(each.code)
    return None


def is_interrupt_behind(error: BaseException | None) -> bool:
    """
    Whether Ctrl-C was wrapped into an error, as by ``pydoc``, or is the error itself.

    Args:
        error: that ends the process.

    Example:
        >>> is_interrupt_behind(ImportError("no such module")), is_interrupt_behind(KeyboardInterrupt())
        (False, True)
    """
    return any(isinstance(each, KeyboardInterrupt) for each in _wrapped(error))


def _wrapped(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was made of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


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
