# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which device a run computes on, and what each kind of device can do: the only place that asks for kinds by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

ACCELERATORS = ("cuda", "xpu", "mps")
"""Kinds of devices that are chosen by themselves: GPUs of NVIDIA and (as "cuda", too) AMD, of Intel and of Apple."""

_BACKENDS = {"cuda": "nccl", "xpu": "xccl"}  # of processes that train together, elsewhere gloo

_TENSOR_CORES = (7, 0)  # compute capability from which on float16 is faster than float32

# instructions of Intel's and AMD's, and of ARM's processors
_NATIVE_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")


def accelerator_kind() -> str | None:
    """Kind of the accelerator that this machine has and PyTorch was built for."""
    device = torch.accelerator.current_accelerator(check_available=True)
    return device.type if device is not None and device.type in ACCELERATORS else None


def default_device() -> torch.device:
    """The accelerator if there is one, or else the CPU; without a number: the current one of its kind."""
    return torch.device(accelerator_kind() or "cpu")


def default_num_workers(device: torch.device | str) -> int:
    """Loader processes that keep a device busy: one per core for a GPU, at most 8; none for a CPU, which is busy."""
    return min(8, os.cpu_count() or 1) if torch.device(device).type != "cpu" else 0


def distributed_backend(device: torch.device) -> str:
    """How processes on such devices talk to one another."""
    return _BACKENDS.get(device.type, "gloo")


def pins_memory(device: torch.device | str) -> bool:
    """Whether batches reach a device faster from pinned memory: not a CPU, nor Apple's GPUs, which share its memory."""
    return torch.device(device).type in _BACKENDS


def has_bfloat16(device: torch.device | str) -> bool:
    """
    Whether a device computes in bfloat16 itself.

    A CPU without such instructions imitates them: autocast works there, and a training step takes two and a half times
    as long as in float32. So do NVIDIA's GPUs before Ampere, such as V100, T4 and RTX 20. Where PyTorch does not report
    the instructions, the answer is False.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        instructions: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        return any(instructions.get(name, False) for name in _NATIVE_BFLOAT16)
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return kind != "mps" or torch.backends.mps.is_macos_or_newer(14, 0)


def half_precision(device: torch.device | str) -> torch.dtype | None:
    """
    The half precision in which a device computes products faster than in float32.

    bfloat16 where the device has it (:func:`has_bfloat16`); else float16, which needs a gradient scaler, for NVIDIA's
    GPUs with tensor cores; else None.
    """
    if has_bfloat16(device):
        return torch.bfloat16
    is_cuda = torch.device(device).type == "cuda"
    if is_cuda and torch.cuda.get_device_capability(device) >= _TENSOR_CORES:
        return torch.float16
    return None


def widest_float(device: torch.device | str) -> torch.dtype:
    """The floating-point type of a device with the most digits."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64
