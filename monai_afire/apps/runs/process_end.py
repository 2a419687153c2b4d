# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How a process of an application ends by an error: its cause is named last."""

from __future__ import annotations

import os
import sys
from traceback import extract_tb, walk_tb
from types import TracebackType

from tqdm import tqdm

from monai_afire.apps.runs.error_hints import hint_for
from monai_afire_cli.interrupts import exit_code_behind
from monai_afire_cli.pipes import is_output_unread

__all__ = ["close_bars", "innermost_cause", "show_cause_last"]

_WHOLE_TRACEBACK = "MONAI_AFIRE_TRACEBACK"  # environment variable


def show_cause_last(interrupted: str = "stopped by Ctrl-C") -> None:
    """
    Print the cause of an uncaught error last, and what to do about a fault of the machine.

    MONAI's config parser wraps an error in several of its own, so that the last line a person sees is "Failed to
    evaluate ConfigExpression" and the message that names the file and the remedy stands far above. Of an error that
    this package raised itself, with a message for its user, the traceback is left out: it would be dozens of lines of
    the parser; the environment variable ``MONAI_AFIRE_TRACEBACK=1`` brings it back. Progress bars are closed before, or
    they would be drawn again below. Changes ``sys.excepthook`` of the process: for applications, such as a bundle's
    ``initialize``.

    Args:
        interrupted: what is said after Ctrl-C, in place of a traceback.

    Example:
        >>> before = sys.excepthook
        >>> show_cause_last()
        >>> sys.excepthook = before
    """
    show_traceback = sys.excepthook

    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        close_bars()
        if exit_code_behind(error) is not None:
            return
        if issubclass(kind, KeyboardInterrupt):
            print(f"\n{interrupted}", file=sys.stderr, flush=True)
            return
        cause = innermost_cause(error)
        if isinstance(cause, BrokenPipeError) and is_output_unread():
            return
        is_short = _is_explained(cause) and not os.environ.get(_WHOLE_TRACEBACK)
        if is_short:
            print(
                f"The traceback is left out; {_WHOLE_TRACEBACK}=1 in the environment shows it.",
                file=sys.stderr,
            )
        else:
            show_traceback(kind, error, traceback)
        if is_short or cause is not error:
            print(f"\nThe cause: {cause}", file=sys.stderr, flush=True)
        remedy = hint_for(cause)
        if remedy:
            print(f"\nWhat happened: {remedy}", file=sys.stderr, flush=True)

    sys.excepthook = show


def close_bars() -> None:
    """Close the progress bars: left open, they would be drawn again below a last message."""
    for bar in list(tqdm._instances):  # tqdm has no public list of them
        bar.close()


def innermost_cause(error: BaseException) -> BaseException:
    """The error within those that MONAI's parser has wrapped around it."""
    while error.__cause__ is not None and _package(error) == "monai":
        error = error.__cause__
    return error


def _package(error: BaseException) -> str | None:
    """The package whose code the error came from."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__")).split(".")[0] if frames else None


def _is_explained(error: BaseException) -> bool:
    """Whether a ``raise`` of this package made the error, with a message for its user, not a fault in the code."""
    if _package(error) != "monai_afire" or isinstance(error, AssertionError):
        return False
    return (extract_tb(error.__traceback__)[-1].line or "").startswith("raise ")
