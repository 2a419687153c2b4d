# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""How a process ends by a signal or an error: its cause, and what to do or to type next, are said last."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import signal
import sys
import threading
from traceback import extract_tb, walk_tb
from types import FrameType, TracebackType

from tqdm import tqdm

from monai_afire.apps.runs.call import given_options
from monai_afire.apps.runs.follow_up import resume_command
from monai_afire.apps.runs.run_folder import run_name, used_folder
from monai_afire.utils.distributed import global_rank, is_launched
from monai_afire_cli.process.interrupts import (
    INTERRUPTED_EXIT_CODE,
    NOTHING_WRITTEN,
    STOPPED_EXIT_CODE,
    EarlyStop,
    errors_behind,
    exit_code_behind,
)
from monai_afire_cli.process.pipes import is_output_unread

__all__ = ["innermost_cause", "say_how_to_go_on", "show_cause_last", "stop_early"]

_WHOLE_TRACEBACK = "MONAI_AFIRE_TRACEBACK"  # environment variable
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
_SHARED_MEMORY = (
    "the loader processes ran out of shared memory (/dev/shm). In Docker start the container with --shm-size 8g or "
    "--ipc=host, in Kubernetes mount an emptyDir of medium Memory at /dev/shm; or use fewer or no loader processes "
    "(--num_workers 0)."
)
_WORKER_KILLED = (
    "the operating system has ended a loader process, nearly always because the memory was used up (dmesg or the "
    "cluster's log says so). Ask for more memory, use fewer loader processes (--num_workers), keep fewer images in "
    "memory (--cache none) or make the batch smaller (--batch_size). Then go on with --resume True."
)
_DISK_FULL = (
    "the disk is full or a quota is used up: free space or choose another folder (--output_dir; in training also "
    "--ckpt_dir). What was complete before is untouched: the same command with --resume True goes on from there."
)
_NO_COMPILER = (
    "--train::trainer::compile True builds code while training, and found no compiler to do so: install g++ (in a "
    "container, build-essential; another one is named by the environment variable CXX) and, for a GPU, PyTorch's "
    "triton; or train without --train::trainer::compile."
)
_REMEDIES = (
    (
        r"No working C\+\+ compiler|working triton installation|Failed to find C compiler",
        _NO_COMPILER,
    ),
    (r"shared memory|worker.*Bus error|/dev/shm", _SHARED_MEMORY),
    (r"worker.*(is killed by signal|exited unexpectedly)", _WORKER_KILLED),
)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        if number is not None and _is_free(number):
            signal.signal(number, _leave)


def _is_free(number: int) -> bool:
    """Whether nobody has chosen what a signal does."""
    handler = signal.getsignal(number)
    return handler in _DEFAULTS or isinstance(handler, EarlyStop)


def _leave(number: int, frame: FrameType | None) -> None:
    if global_rank() == 0 and multiprocessing.parent_process() is None:
        close_bars()
        text = f"\nstopped by {signal.Signals(number).name}{_how_to_go_on()}\n"
        os.write(2, text.encode())  # print is not safe here
    raise SystemExit(INTERRUPTED_EXIT_CODE if number == signal.SIGINT else STOPPED_EXIT_CODE)


def _how_to_go_on() -> str:
    folder = used_folder()
    return NOTHING_WRITTEN if folder is None else f"\n{go_on_line(folder.name)}"


def say_how_to_go_on(output_dir: str | os.PathLike) -> None:
    """Print how to go on with a stopped run, below its progress bars, once for all ranks."""
    if global_rank():
        return
    close_bars()
    print(go_on_line(run_name(output_dir)), flush=True)


def go_on_line(name: str | None) -> str:
    """The command that resumes a stopped run, by its name if it has one, or what a program does in its place."""
    given = given_options()
    way = resume_command(given, name) if given else "the same call with resume=True"
    return f"go on by:  {way}"


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


def hint_for(error: BaseException) -> str | None:
    """Say what to do about an error that comes from the machine: a loader process killed, a full disk, no compiler."""
    for found in errors_behind(error):
        if isinstance(found, OSError) and found.errno in _FULL:
            return _DISK_FULL
        for pattern, remedy in _REMEDIES:
            if isinstance(found, (RuntimeError, OSError)) and re.search(pattern, str(found)):
                return remedy
    return None
