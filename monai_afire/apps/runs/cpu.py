# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Settings that make training on a CPU faster; the one place that changes the memory allocator."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from functools import cache
from pathlib import Path

import torch

from monai_afire.utils.device import accelerator_kind

__all__ = ["free_threads", "tune_cpu"]

_TIMES, _MOMENT = Path("/proc/stat"), 0.25  # seconds
_CHOSEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

# parameters of glibc's mallopt
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4


def tune_cpu() -> str | None:
    """
    Speed up training on a CPU; changes settings of the whole process, so call it from an application, not a library.

    * Matrix products of float32 go through oneDNN instead of MKL (``set_float32_matmul_precision("medium")``), about
      twice as fast, with errors of float32's size on CPUs without matrix units for bfloat16 (AMX).
    * Freed memory is kept for the next tensor instead of going back to the system in every step. Without this, the
      page faults of new memory take 10 to 25 % of a training step. PyTorch has no such setting, so glibc is called
      (Linux; elsewhere nothing happens).
    * Threads are left to cores that other programs do not use, see :func:`free_threads`.

    With a GPU the precision is "high" (TF32), and the memory is left alone.

    Returns:
        That the threads are fewer than planned, and what sets their number; None where they are not.

    Example:
        >>> before = torch.get_float32_matmul_precision()
        >>> _ = tune_cpu()
        >>> torch.set_float32_matmul_precision(before)
    """
    has_gpu = accelerator_kind() is not None
    fewer = _leave_busy_cores()
    torch.set_float32_matmul_precision("high" if has_gpu else "medium")
    if sys.platform == "linux" and not has_gpu:
        try:
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(M_MMAP_MAX, 0)
            libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
            libc.mallopt(M_TOP_PAD, 1 << 26)
        except (OSError, AttributeError):  # another C library
            pass
    return fewer


@cache
def _leave_busy_cores() -> str | None:
    """Use fewer threads where other programs use cores; once, since later this process is the load itself."""
    planned = torch.get_num_threads()
    number = free_threads(planned)
    torch.set_num_threads(number)
    if number == planned:
        return None
    threads = "1 thread" if number == 1 else f"{number} threads"
    return f"{threads} of {planned}: other programs use the cores; OMP_NUM_THREADS sets it"


def free_threads(number: int) -> int:
    """
    The threads that find a core of their own at this moment.

    A thread of OpenMP spins while it waits for the others. Where there are more of them than free cores, all wait for
    one that does not run, and a step takes many times as long as with a single thread.

    Args:
        number: threads that are planned.

    Returns:
        At most this number and at least 1; the number itself where the environment says how many threads there are, and
        on systems without ``/proc/stat``.

    Example:
        >>> free_threads(1)
        1
    """
    if any(name in os.environ for name in _CHOSEN) or not _TIMES.is_file():
        return number
    return max(1, min(number, round(_idle_cores())))


def _idle_cores() -> float:
    """The cores that nobody used for a moment in which this process sleeps."""
    idle, total = _cpu_times()
    time.sleep(_MOMENT)
    idle_after, total_after = _cpu_times()
    share = (idle_after - idle) / max(1, total_after - total)
    return share * (os.cpu_count() or 1)


def _cpu_times() -> tuple[int, int]:
    """Ticks for which all cores were idle, or waited for a disk, and all ticks, since the machine started (proc(5))."""
    times = [int(word) for word in _TIMES.read_text().split("\n", 1)[0].split()[1:9]]
    return times[3] + times[4], sum(times)
