# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The start and end of processes that ``torchrun`` launches: device, group, the network within it, share of a batch."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import ignite.distributed as idist
import torch
import torch.distributed as dist
from torch import nn

from monai_afire.utils.device import default_device, distributed_backend
from monai_afire.utils.distributed import global_rank, has_process_group, world_size

# the main rank may have hundreds of phantoms to draw, or a large data set to cache, while the others wait
LONGEST_WAIT = timedelta(hours=2)


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


def unwrapped(network: nn.Module) -> nn.Module:
    """The network within ``DistributedDataParallel``, ``DataParallel`` and ``torch.compile``."""
    if isinstance(network, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        return unwrapped(network.module)
    compiled = getattr(network, "_orig_mod", None)  # of torch.compile
    return network if compiled is None else unwrapped(compiled)


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
