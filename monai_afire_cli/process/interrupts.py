# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A stop by a signal: its exit codes, what is said before a command can, and how it waits for another program."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

__all__ = [
    "INTERRUPTED_EXIT_CODE",
    "NOTHING_WRITTEN",
    "STOPPED_EXIT_CODE",
    "EarlyStop",
    "errors_behind",
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

_HELD = (signal.SIGINT, signal.SIGTERM)
_CAN_HOLD = hasattr(signal, "pthread_sigmask")  # not on Windows


def stopped_line(is_run: bool, name: str = "SIGINT") -> str:
    """
    What is said after Ctrl-C, or another signal.

    Args:
        is_run: of a bundle, which has not begun.
        name: of the signal.

    Example:
        >>> stopped_line(is_run=False)
        'stopped by SIGINT'
    """
    return f"stopped by {name}{NOTHING_WRITTEN if is_run else ''}"


@dataclass(frozen=True)
class EarlyStop:
    """
    Handler of SIGTERM until a command is loaded and has its own: a line, and exit code 143.

    Args:
        is_run: whether the command is the run of a bundle.

    Example:
        >>> EarlyStop(is_run=True).is_run
        True
    """

    is_run: bool
    process: int = field(default_factory=os.getpid)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Say it and leave; the loader processes of a command leave without a word."""
        if os.getpid() == self.process:
            text = stopped_line(self.is_run, signal.Signals(number).name)
            os.write(2, f"\n{text}\n".encode())  # print is not safe here
        raise SystemExit(STOPPED_EXIT_CODE)


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
    for each in errors_behind(error):
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
    return any(isinstance(each, KeyboardInterrupt) for each in errors_behind(error))


def errors_behind(error: BaseException | None) -> Iterator[BaseException]:
    """
    An error, and those that it was made of, the last one first.

    Args:
        error: any; None for none.

    Example:
        >>> list(errors_behind(None))
        []
    """
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """
    Let Ctrl-C and SIGTERM wait. A program that the process becomes meanwhile lets them through.

    See :func:`release_interrupts`.

    Example:
        >>> with hold_interrupts():
        ...     pass
    """
    if not _CAN_HOLD:
        yield
        return
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def release_interrupts() -> None:
    """
    Let Ctrl-C and SIGTERM through, one that waits at once.

    Example:
        >>> release_interrupts()
    """
    if _CAN_HOLD:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
