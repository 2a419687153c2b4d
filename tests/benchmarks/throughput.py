# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Use of the machine by a training step: floating-point operations, peak of the matrix products, parts of time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["PartTimer", "count_flops", "matmul_peak", "nominal_peak"]

# dense bfloat16 products without sparsity, FLOP/s, by the vendor's data sheets
NOMINAL_BFLOAT16 = {
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H200": 989e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
}
MATMUL_SIDES = {"cpu": (512, 1024, 2048, 4096), "cuda": (2048, 4096, 8192, 16384)}


class PartTimer:
    """
    Seconds of the named parts of a step; on a GPU by events on its stream, without waiting for it.

    A part may lie inside another; its time then counts in both.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: dict[str, list[tuple[Any, Any]]] = defaultdict(list)

    def mark(self) -> Any:
        """This moment."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside as this part."""
        start = self.mark()
        yield
        self.marks[name].append((start, self.mark()))

    def watch(self, module: torch.nn.Module, name: str) -> None:
        """Count every forward pass of a module as this part."""
        started: list[Any] = []
        module.register_forward_pre_hook(lambda *_: started.append(self.mark()))
        module.register_forward_hook(
            lambda *_: self.marks[name].append((started.pop(), self.mark()))
        )

    def seconds(self) -> dict[str, float]:
        """Sum of each part since the last call; waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            result = {
                n: sum(a.elapsed_time(b) for a, b in marks) / 1e3 for n, marks in self.marks.items()
            }
        else:
            result = {n: sum(b - a for a, b in marks) for n, marks in self.marks.items()}
        self.marks.clear()
        return result


def count_flops(function: Callable[[], object]) -> int:
    """Floating-point operations of the products and convolutions of a call, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def matmul_peak(
    device: torch.device, dtype: torch.dtype, sides: Sequence[int] = (), repeats: int = 5
) -> float:
    """
    Largest FLOP/s of square products in this precision, over sizes and over PyTorch's settings of float32 products.

    Args:
        device: where to measure.
        dtype: of the factors.
        sides: of the square matrices; by device if none are given.
        repeats: products of each size, of which the fastest counts.
    """
    settings = ("highest", "high", "medium") if dtype == torch.float32 else ("highest",)
    before, best = torch.get_float32_matmul_precision(), 0.0
    for precision in settings:
        torch.set_float32_matmul_precision(precision)
        for side in sides or MATMUL_SIDES[device.type]:
            a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
            for _ in range(repeats + 1):
                timer = PartTimer(device)
                with timer.part("product"):
                    a @ b
                best = max(best, 2 * side**3 / timer.seconds()["product"])
    torch.set_float32_matmul_precision(before)
    return best


def nominal_peak(device: torch.device) -> float | None:
    """The data sheet's FLOP/s of dense bfloat16 products, None where it is not known here."""
    if device.type != "cuda":
        return None
    return NOMINAL_BFLOAT16.get(torch.cuda.get_device_name(device))
