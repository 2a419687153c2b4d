# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Numerical precision: float32 in mixed-precision code, precision of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """
    Widen half precision to float32; probabilities and their logarithms need more digits than autocast leaves.

    Args:
        x: tensor of any float type.

    Returns:
        The same in float32, or unchanged if it is float64.

    Example:
        >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return x if x.dtype == torch.float64 else x.float()


@contextmanager
def full_matmul_precision() -> Iterator[None]:
    """
    Compute matrix products of float32 with all its digits for a while, whatever the process has chosen.

    Example:
        >>> with full_matmul_precision():
        ...     torch.get_float32_matmul_precision()
        'highest'
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def without_autocast(values: torch.Tensor) -> AbstractContextManager:
    """
    Leave autocast for a while, except in a graph that is being exported, which knows none.

    torch.export writes a block without autocast as a subgraph that ``torch.export.load`` cannot read back.

    Args:
        values: any on the device that computes.

    Returns:
        A context manager.

    Example:
        >>> one = torch.ones(1, 1)
        >>> with torch.autocast("cpu", torch.bfloat16), without_autocast(one):
        ...     (one @ one).dtype
        torch.float32
    """
    if torch.compiler.is_exporting():
        return nullcontext()
    return torch.autocast(values.device.type, enabled=False)
