# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numerical precision: float32 in mixed-precision code, precision of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Widen half precision to float32; probabilities and their logarithms need more digits than autocast leaves."""
    return x if x.dtype == torch.float64 else x.float()


@contextmanager
def full_matmul_precision() -> Iterator[None]:
    """Compute matrix products of float32 with all its digits for a while, whatever the process has chosen."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def without_autocast(values: torch.Tensor) -> AbstractContextManager:
    """
    Leave autocast on the device of some values for a while, except in a graph that is being exported.

    torch.export writes a block without autocast as a subgraph that ``torch.export.load`` cannot read back.
    """
    if torch.compiler.is_exporting():
        return nullcontext()
    return torch.autocast(values.device.type, enabled=False)
