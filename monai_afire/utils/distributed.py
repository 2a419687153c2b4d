# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Processes that train together: their ranks, and collectives with the gradients that DDP needs.

Without a process group every collective is the identity. Each waits for the same call on all ranks: call them on every
rank, equally often and in the same order. None but ``all_gather_object`` makes the host wait for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

_T = TypeVar("_T")


def has_process_group() -> bool:
    """Whether this process has joined others."""
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """Number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if has_process_group() else 1


def global_rank() -> int:
    """Number of this process among all that train together; the main one, which writes and reports, has 0."""
    return dist.get_rank() if has_process_group() else 0


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    """
    Sum a tensor over all ranks; ``x`` itself in a single process.

    The gradient is that which ``DistributedDataParallel`` needs: where every rank computes the same loss from the sum,
    the average of the ranks' gradients, which it takes, is the gradient of this loss. The backward pass does without
    communication.
    """
    return x if world_size() == 1 else _AllReduce.apply(x)


@torch.no_grad()
def all_reduce_max(x: torch.Tensor) -> torch.Tensor:
    """The elementwise maximum of a tensor over all ranks, without gradient."""
    if world_size() == 1:
        return x
    peak = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    return peak


def all_gather(x: torch.Tensor) -> torch.Tensor:
    """
    Join the batches of all ranks, in the order of the ranks, with gradients to the ranks that they come from.

    A rank's gradient is the sum of what all ranks' losses ask of its batch. ``(B, ...)`` of any type, of the same shape
    on every rank, become ``(W B, ...)`` of W ranks; other sizes are refused on a CPU only: a GPU would have to stop.
    """
    if world_size() == 1:
        return x
    if x.device.type == "cpu":
        _check_equal_batches(x)
    if x.dtype == torch.bool:  # not every backend knows bool
        return _gather(x.to(torch.uint8)).bool()
    return _AllGather.apply(x)


def all_gather_object(value: Any) -> list[Any]:
    """The value of each rank, in the order of the ranks; it travels pickled, and the host waits for it."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def barrier() -> None:
    """Go on when all ranks have come here."""
    if world_size() > 1:
        dist.barrier()


def share_of(batches: Sequence[_T]) -> Sequence[_T]:
    """This process's share of the batches of a list; all shares together are the list."""
    return batches[global_rank() :: world_size()]


def by_main_rank(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function on the main rank alone, while the others wait, and give all what it returns."""
    return all_gather_object(function(*arguments) if global_rank() == 0 else None)[0]


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        # all ranks have the same gradient here; its sum over them makes up for the average that DDP takes
        return gradient * world_size()


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return _gather(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(world_size())[global_rank()]


def _gather(x: torch.Tensor) -> torch.Tensor:
    parts = [
        torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world_size())
    ]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def _check_equal_batches(x: torch.Tensor) -> None:
    size = torch.tensor([len(x), -len(x)])
    largest, smallest = all_reduce_max(size).tolist()
    if largest != -smallest:
        sizes = f"{-smallest} to {largest} images, this one (rank {global_rank()}) {len(x)}"
        remedy = "use a DistributedSampler, and drop_last if the last batches differ"
        raise ValueError(
            f"the ranks have batches of {sizes}: only equal batches can be joined; {remedy}"
        )
