# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Settings that make training on a CPU faster; the one place that changes the memory allocator."""

from __future__ import annotations

import ctypes
import sys

import torch

from monai_afire.utils.device import accelerator_kind

__all__ = ["tune_cpu"]

# parameters of glibc's mallopt
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4


def tune_cpu() -> None:
    """
    Speed up training on a CPU; changes settings of the whole process, so call it from an application, not a library.

    * Matrix products of float32 go through oneDNN instead of MKL (``set_float32_matmul_precision("medium")``), about
      twice as fast, with errors of float32's size on CPUs without matrix units for bfloat16 (AMX).
    * Freed memory is kept for the next tensor instead of going back to the system in every step. Without this, the
      page faults of new memory take 10 to 25 % of a training step. PyTorch has no such setting, so glibc is called
      (Linux; elsewhere nothing happens).

    With a GPU the precision is "high" (TF32), and the memory is left alone.

    Example:
        >>> before = torch.get_float32_matmul_precision()
        >>> tune_cpu()
        >>> torch.set_float32_matmul_precision(before)
    """
    has_gpu = accelerator_kind() is not None
    torch.set_float32_matmul_precision("high" if has_gpu else "medium")
    if sys.platform == "linux" and not has_gpu:
        try:
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(M_MMAP_MAX, 0)
            libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
            libc.mallopt(M_TOP_PAD, 1 << 26)
        except (OSError, AttributeError):  # another C library
            pass
