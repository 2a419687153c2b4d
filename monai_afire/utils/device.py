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
    """
    The device of a run that names none: the accelerator if there is one, or else the CPU.

    Returns:
        The device, without a number: the current one of its kind.

    Example:
        >>> default_device().type in (*ACCELERATORS, "cpu")
        True
    """
    return torch.device(accelerator_kind() or "cpu")


def chosen_device(name: str) -> torch.device:
    """
    The device of a run that names one, made the current one of its kind.

    Events and the states of random numbers are those of the current device.

    Args:
        name: such as "cpu", "cuda" or "cuda:1".

    Returns:
        The device.

    Example:
        >>> chosen_device("cpu")
        device(type='cpu')
    """
    device = torch.device(name)
    if device.type != "cpu" and device.index is not None:
        torch.accelerator.set_device_index(device.index)
    return device


def device_count(kind: str) -> int:
    """Number of devices of a kind that this process can use."""
    if kind == "cpu":
        return 1
    return torch.accelerator.device_count() if kind == accelerator_kind() else 0


def default_num_workers(device: torch.device | str) -> int:
    """
    Number of loader processes that keep a device busy.

    Args:
        device: that the run trains on.

    Returns:
        The number of cores, at most 8, for a GPU; 0 for a CPU, which has enough to do.

    Example:
        >>> default_num_workers("cpu")
        0
    """
    return min(8, os.cpu_count() or 1) if torch.device(device).type != "cpu" else 0


def distributed_backend(device: torch.device) -> str:
    """How processes on such devices talk to one another."""
    return _BACKENDS.get(device.type, "gloo")


def pins_memory(device: torch.device | str) -> bool:
    """
    Whether batches reach a device faster from pinned memory.

    Args:
        device: that the run trains on.

    Returns:
        False for a CPU, and for Apple's GPUs, which share its memory.

    Example:
        >>> pins_memory("cpu")
        False
    """
    return torch.device(device).type in _BACKENDS


def has_bfloat16(device: torch.device | str) -> bool:
    """
    Whether a device computes in bfloat16 itself.

    A CPU without such instructions imitates them: autocast works there, and a training step takes two and a half times
    as long as in float32. So do NVIDIA's GPUs before Ampere, such as V100, T4 and RTX 20. Where PyTorch does not report
    the instructions, the answer is False.

    Args:
        device: that the network is on.

    Returns:
        False for CPUs and GPUs that lack it, and for macOS before version 14.

    Example:
        >>> isinstance(has_bfloat16("cpu"), bool)
        True
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

    Args:
        device: that the network is on.

    Returns:
        bfloat16 where the device has it (:func:`has_bfloat16`); else float16, which needs a gradient scaler, for
        NVIDIA's GPUs with tensor cores; else None.

    Example:
        >>> half_precision("cpu") in (torch.bfloat16, None)
        True
    """
    if has_bfloat16(device):
        return torch.bfloat16
    is_cuda = torch.device(device).type == "cuda"
    if is_cuda and torch.cuda.get_device_capability(device) >= _TENSOR_CORES:
        return torch.float16
    return None


def described_precision(device: torch.device | str, is_half: bool = True) -> str:
    """
    On what a run computes, and in which precision.

    Args:
        device: that the network is on.
        is_half: whether half precision is wanted where the device has one.

    Returns:
        A line.

    Example:
        >>> described_precision("cpu", is_half=False)
        'computing on cpu in float32'
    """
    kind = torch.device(device).type
    name = f"{device} ({torch.cuda.get_device_name(device)})" if kind == "cuda" else str(device)
    half = half_precision(device) if is_half else None
    if half == torch.float16:
        return f"computing on {name} in float16 with a gradient scaler: it has no bfloat16"
    return f"computing on {name} in {'float32' if half is None else 'bfloat16'}"


def widest_float(device: torch.device | str) -> torch.dtype:
    """The floating-point type of a device with the most digits."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64
