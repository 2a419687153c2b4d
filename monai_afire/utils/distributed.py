# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Processes that train together: their group, ranks and devices, and collectives with the gradients that DDP needs.

Without a process group every collective is the identity. Each waits for the same call on all ranks: call them on every
rank, equally often and in the same order. None but ``all_gather_object`` makes the host wait for a GPU.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import ignite.distributed as idist
import torch
import torch.distributed as dist
from torch import nn

from monai_afire.utils.device import default_device, distributed_backend

# the main rank may have hundreds of phantoms to draw, or a large data set to cache, while the others wait
LONGEST_WAIT = timedelta(hours=2)

_T = TypeVar("_T")


def has_process_group() -> bool:
    """Whether this process has joined others."""
    return dist.is_available() and dist.is_initialized()


def is_launched() -> bool:
    """Whether ``torchrun`` started this process."""
    return "LOCAL_RANK" in os.environ


def run_device() -> torch.device:
    """
    The device of a run that names none: an accelerator, or else the CPU.

    Where ``torchrun`` started the process, the GPU with the number that it gave the process on its machine, or else the
    CPU, as where the GPUs' processes cannot train together (Apple's).

    Raises:
        RuntimeError: when there are fewer GPUs than processes.
    """
    device = default_device()
    if not is_launched():
        return device
    if distributed_backend(device) == "gloo":
        return torch.device("cpu")
    local_rank, count = int(os.environ["LOCAL_RANK"]), torch.accelerator.device_count()
    if local_rank >= count:
        found = f"process {local_rank} of this machine has no GPU, there are {count}"
        raise RuntimeError(f"{found}: start one process per GPU with --nproc_per_node")
    return torch.device(device.type, local_rank)


def join_process_group(device: torch.device | str) -> None:
    """
    Make a device the current one, and join the processes that ``torchrun`` started, if any.

    They talk by NCCL (Intel's: XCCL) on GPUs, by gloo on CPUs. Products of float32 are computed as fast as they lose
    little: by TF32 on a GPU, by oneDNN on a CPU (``set_float32_matmul_precision``).

    All but the main one fall silent: what they print goes nowhere, and of what they log only warnings and errors are
    kept; errors still reach the terminal. Changes ``sys.stdout`` and the handlers of the root logger: for applications,
    such as a bundle's ``initialize``. Leave the group with :func:`destroy_process_group`. A process that is in a group
    already stays in it: MONAI's client of federated learning initializes a bundle four times.

    Args:
        device: of this process, see :func:`run_device`.
    """
    device = torch.device(device)
    if device.type != "cpu" and device.index is not None:
        torch.accelerator.set_device_index(device.index)  # whose events and random states are used
    torch.set_float32_matmul_precision("medium" if device.type == "cpu" else "high")
    if not is_launched() or dist.is_initialized():
        return
    dist.init_process_group(distributed_backend(device), timeout=LONGEST_WAIT)
    if global_rank():
        for handler in logging.getLogger().handlers:
            handler.setLevel(max(handler.level, logging.WARNING))
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends


def parallel_network(
    network: nn.Module, device: torch.device | str, find_unused_parameters: bool = False
) -> nn.Module:
    """
    A network as a run trains it: on its device, and in a process group within ``DistributedDataParallel``.

    There its batch norms take their statistics of the global batch. PyTorch has such norms for GPUs only; on a CPU they
    stay as they are.

    Args:
        network: changed in place but for its own batch norms, if it is one.
        device: of this process.
        find_unused_parameters: whether steps may leave parameters without a gradient.
    """
    if not has_process_group():
        return network.to(device)
    device, device_ids = torch.device(device), None
    if device.type != "cpu":
        network, device_ids = nn.SyncBatchNorm.convert_sync_batchnorm(network), [device]
    return nn.parallel.DistributedDataParallel(
        network.to(device), device_ids=device_ids, find_unused_parameters=find_unused_parameters
    )


def destroy_process_group() -> None:
    """End what :func:`join_process_group` began, for ignite too, whose metrics would go on to look for the group."""
    idist.finalize()
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def launched_group(device: torch.device | None = None) -> Iterator[None]:
    """Join the processes that ``torchrun`` started, if it did, for as long as the context lasts."""
    join_process_group(device or run_device())
    try:
        yield
    finally:
        if is_launched():
            destroy_process_group()


def world_size() -> int:
    """Number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if has_process_group() else 1


def global_rank() -> int:
    """Number of this process among all that train together; the main one, which writes and reports, has 0."""
    return dist.get_rank() if has_process_group() else 0


def per_process_batch(global_batch: int, accumulation_steps: int = 1) -> int:
    """
    Images per process and pass, of so many per optimizer step of all processes.

    Raises:
        ValueError: when the images cannot be divided equally.

    Example:
        >>> per_process_batch(64, accumulation_steps=4)
        16
    """
    shares = world_size() * accumulation_steps
    if global_batch % shares:
        parts = f"{world_size()} processes and {accumulation_steps} accumulation_steps"
        raise ValueError(
            f"{global_batch} images per step cannot be divided among {parts}: give --batch_size"
        )
    return global_batch // shares


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


def unwrapped(network: nn.Module) -> nn.Module:
    """The network within ``DistributedDataParallel``, ``DataParallel`` and ``torch.compile``."""
    if isinstance(network, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        return unwrapped(network.module)
    compiled = getattr(network, "_orig_mod", None)  # of torch.compile
    return network if compiled is None else unwrapped(compiled)
