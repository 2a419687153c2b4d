# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Means of a loss: over the batch of all processes, and within a sample."""

from __future__ import annotations

import torch
from torch import Tensor

from monai_afire.utils.distributed import all_reduce, world_size


def global_mean(values: Tensor, where: Tensor | None = None) -> Tensor:
    r"""
    Mean over the global batch, of the values that count.

    .. math:: \frac{\sum_{r=1}^{W} \sum_{i\ \text{counts}} x_{ri}}{\sum_{r=1}^{W} \sum_{i\ \text{counts}} 1}

    The ranks r rarely hold equally many values that count, so that the mean of their means would weigh values by where
    they lie. The result is the same on every rank, and the average of the ranks' gradients, as
    ``DistributedDataParallel`` takes it, is the gradient of this mean. One small sum over the ranks, no waiting for
    the device.

    Args:
        values: any shape.
        where: bool of this shape, True for the values that count; neither mean nor gradient sees the rest. None for
            all.

    Returns:
        Scalar; 0 when nothing counts.

    Example:
        >>> global_mean(torch.tensor([1.0, 2.0, float("nan")]), torch.tensor([True, True, False]))
        tensor(1.5000)
    """
    if where is not None:
        total, count = _of_all_ranks(torch.where(where, values, 0.0).sum(), where.sum())
        return total / count.clamp_min(1)
    if world_size() == 1:
        return values.mean()
    total, count = _of_all_ranks(values.sum(), values.new_full((), values.numel()))
    return total / count


def global_weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean over the global batch, see :func:`global_mean`; weights >= 0, not all 0."""
    total, count = _of_all_ranks((weight * values).sum(), weight.sum())
    return total / count


def _of_all_ranks(total: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    if world_size() == 1:
        return total, count
    summed = all_reduce(torch.stack([total, count.to(total.dtype)]))
    return summed[0], summed[1]
