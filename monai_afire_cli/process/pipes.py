# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Output that nobody reads any more, as behind ``| head``."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import IO

__all__ = ["is_output_unread", "until_unread"]

_STATUS = 141  # 128 + SIGPIPE, as a shell says of a program that the signal ended


def until_unread(command: Callable[[], int | None]) -> int | None:
    """
    Run a command, and end quietly when the reader of its output has gone.

    Args:
        command: prints, and returns an exit status.

    Returns:
        Its exit status; 141 when nobody reads on.

    Example:
        >>> until_unread(lambda: 3)
        3
    """
    try:
        try:
            status = command()
        finally:
            sys.stdout.flush()  # a short output fails here, else when Python has ended
    except BrokenPipeError:
        if not is_output_unread():  # another pipe, such as that of a loader process
            raise
        return _STATUS
    return status


def is_output_unread(stream: IO | None = None) -> bool:
    """
    Whether the reader of the output has gone; what is still to be written is dropped then.

    Args:
        stream: with a file descriptor; None for the standard output.

    Example:
        >>> with open(os.devnull) as somewhere:
        ...     is_output_unread(somewhere)
        False
    """
    if not hasattr(select, "poll"):  # Windows
        return False
    output = (stream or sys.stdout).fileno()
    poll = select.poll()
    poll.register(output, select.POLLERR)
    if not poll.poll(0):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)  # or Python fails once more when it ends
    os.close(nowhere)
    return True
