# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Functions run by two processes that train together."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from imported_processes import start_ranks

TIMEOUT = 300  # seconds until a hanging pair of processes is ended

needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs PyTorch's gloo backend"
)


def run_on_two_ranks(function: Callable[[int, int], Any], folder: Path) -> list[Any]:
    """What ``function(rank, world_size)`` returns on each rank; it must be importable and return tensors."""
    context = start_ranks(_work, function, str(folder))
    deadline = time.monotonic() + TIMEOUT
    while not context.join(timeout=1):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
            pytest.fail(f"the two processes did not finish within {TIMEOUT} s")
    return [torch.load(folder / f"rank_{rank}.pt", weights_only=True) for rank in range(2)]


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def launch_variables(rank: int, count: int, port: int) -> dict[str, str]:
    """What ``torchrun`` tells each of the processes that it starts on one machine."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    told = {name: str(value) for name, value in {**numbers, "MASTER_PORT": port}.items()}
    return {**told, "MASTER_ADDR": "localhost"}


def share(x: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """A rank's part of the global batch."""
    return x.chunk(world_size)[rank]


def _work(rank: int, function: Callable[[int, int], Any], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        torch.save(function(rank, 2), f"{folder}/rank_{rank}.pt")
    finally:
        dist.destroy_process_group()
