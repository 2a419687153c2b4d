# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Command line of a bundle: switches, and errors whose cause stands last."""

from __future__ import annotations

import os
import sys
from traceback import extract_tb, walk_tb
from types import TracebackType

from tqdm import tqdm

from monai_afire.utils.error_hints import hint_for

__all__ = ["as_bool", "show_cause_last"]

_WHOLE_TRACEBACK = "MONAI_AFIRE_TRACEBACK"  # environment variable


def as_bool(value: bool | int | str) -> bool:
    """
    Read a switch of a bundle's config.

    ``python -m monai.bundle run --resume false`` hands over the text "false", which Python takes for true.

    Args:
        value: a bool, 0 or 1, or one of the words true, false, yes, no, on, off in any case.

    Returns:
        The bool.

    Raises:
        ValueError: for anything else.

    Example:
        >>> as_bool("false"), as_bool("True"), as_bool(False)
        (False, True, False)
    """
    word = str(value).strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise ValueError(f"expected true or false, got {value!r}")


def show_cause_last() -> None:
    """
    Print the cause of an uncaught error last, and what to do about a fault of the machine.

    MONAI's config parser wraps an error in several of its own, so that the last line a person sees is "Failed to
    evaluate ConfigExpression" and the message that names the file and the remedy stands far above. Of an error that
    this package raised itself, with a message for its user, the traceback is left out: it would be dozens of lines of
    the parser; the environment variable ``MONAI_AFIRE_TRACEBACK=1`` brings it back. Progress bars are closed before, or
    they would be drawn again below. Changes ``sys.excepthook`` of the process: for applications, such as a bundle's
    ``initialize``.

    Example:
        >>> before = sys.excepthook
        >>> show_cause_last()
        >>> sys.excepthook = before
    """
    show_traceback = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        for bar in list(tqdm._instances):
            bar.close()
        cause = innermost_cause(error)
        is_short = _is_explained(cause) and not os.environ.get(_WHOLE_TRACEBACK)
        if is_short:
            print(f"The traceback is left out; {_WHOLE_TRACEBACK}=1 in the environment shows it.", file=sys.stderr)
        else:
            show_traceback(kind, error, traceback)
        if is_short or cause is not error:
            print(f"\nThe cause: {cause}", file=sys.stderr, flush=True)
        remedy = hint_for(cause)
        if remedy:
            print(f"\nWhat happened: {remedy}", file=sys.stderr, flush=True)

    sys.excepthook = show


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
