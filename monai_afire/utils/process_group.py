# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Start of a process that trains together with others, for the bundles' ``multi_gpu_train.json``."""

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

from monai_afire.utils.distributed import global_rank, world_size

__all__ = ["init_process_group", "destroy_process_group", "main_rank_first", "rank_device"]

# the main rank may have hundreds of phantoms to draw, or a large data set to cache, while the others wait
LONGEST_WAIT = timedelta(hours=2)


def rank_device() -> torch.device:
    """
    Device of this process: the GPU with the number that ``torchrun`` gave it on its machine, or else the CPU.

    Returns:
        The device.

    Raises:
        RuntimeError: when ``torchrun`` did not start this process, or there are fewer GPUs than processes.

    Example:
        >>> import pytest
        >>> with pytest.MonkeyPatch.context() as patch:
        ...     patch.setenv("LOCAL_RANK", "0")
        ...     device = rank_device()
        >>> device.type == ("cuda" if torch.cuda.is_available() else "cpu")
        True
    """
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank is None:
        raise RuntimeError(
            "LOCAL_RANK is not set: multi_gpu_train.json is for `torchrun --nproc_per_node=N -m monai.bundle run ...`; "
            "leave it out to train in one process"
        )
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if int(local_rank) >= torch.cuda.device_count():
        raise RuntimeError(
            f"process {local_rank} of this machine has no GPU, there are {torch.cuda.device_count()}: start one "
            "process per GPU with --nproc_per_node"
        )
    return torch.device("cuda", int(local_rank))


def init_process_group(device: torch.device) -> None:
    """
    Join the processes that ``torchrun`` started: by NCCL on GPUs, by gloo on CPUs; all but the main one fall silent.

    What they print goes nowhere, and of what they log only warnings and errors are kept; errors still reach the
    terminal. Changes ``sys.stdout`` and the handlers of the root logger: for applications, such as a bundle's
    ``initialize``. Leave the group with :func:`destroy_process_group`.

    Args:
        device: of this process, see :func:`rank_device`.

    Raises:
        ValueError: when ``torchrun`` did not start this process.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=LONGEST_WAIT)
    if global_rank():
        for handler in logging.getLogger().handlers:
            handler.setLevel(max(handler.level, logging.WARNING))
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends


def destroy_process_group() -> None:
    """
    End what :func:`init_process_group` began, for ignite too, whose metrics would go on to look for the group.

    Example:
        >>> destroy_process_group()  # without a group nothing happens
        >>> dist.is_initialized()
        False
    """
    idist.finalize()
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def main_rank_first() -> Iterator[None]:
    """
    Let the main rank do something, such as write files, before all others do the same and find it done.

    All ranks must come here. When the main rank fails, the others wait until ``torchrun`` ends them.

    Example:
        >>> with main_rank_first():
        ...     print("written")
        written
    """
    if global_rank():
        dist.barrier()
    yield
    if world_size() > 1 and not global_rank():
        dist.barrier()
