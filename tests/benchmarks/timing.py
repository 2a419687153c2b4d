# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Timing side by side: every way in turn, again and again, so that a machine whose speed drifts is fair to all."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

__all__ = ["machine", "take_turns", "timed"]


def machine(device: torch.device | str = "cpu") -> str:
    """One line on what the figures were measured with."""
    device = torch.device(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    cpu = names[0] if names else platform.processor()
    return f"{cpu}, {torch.get_num_threads()} threads, torch {torch.__version__}{gpu}"


def timed(function: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def take_turns(
    ways: Mapping[str, Callable[[], object]], rounds: int, device: torch.device, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of every call by name: each way in turn, again and again, after calls that are not counted."""
    for _ in range(warm_up):
        for function in ways.values():
            timed(function, device)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, function in ways.items():
            times[name].append(timed(function, device))
    return times
