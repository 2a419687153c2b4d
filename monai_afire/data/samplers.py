# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The random sampler of a training in a process group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import torch
from torch.utils.data.distributed import DistributedSampler


class DistributedRandomSampler(DistributedSampler):
    """
    PyTorch's ``RandomSampler`` with ``num_samples``, divided among the processes of a distributed run.

    An epoch of a small data set may go through it several times, in another order each time; PyTorch's
    ``DistributedSampler`` goes through it once. The order depends on seed and epoch alone; MONAI's engines call
    ``set_epoch``.

    Args:
        dataset: the data set.
        num_samples: images per epoch of all processes together, rounded up to a multiple of their number; None for
            the size of the data set.
        seed: the same on every rank.
        num_replicas, rank: number of processes and of this one, None for those of the process group.
        min_batches: least number of batches of ``batch_size`` per epoch of each process.
        batch_size: of one process.

    Example:
        >>> samplers = [DistributedRandomSampler(range(3), num_samples=6, num_replicas=2, rank=rank) for rank in (0, 1)]
        >>> [len(sampler) for sampler in samplers], sorted(index for sampler in samplers for index in sampler)
        ([3, 3], [0, 0, 1, 1, 2, 2])
    """

    def __init__(
        self,
        dataset: Sized,
        num_samples: int | None = None,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        min_batches: int = 0,
        batch_size: int = 1,
    ) -> None:
        wanted = len(dataset) if num_samples is None else num_samples
        super().__init__(dataset, num_replicas, rank, shuffle=True, seed=seed)  # type: ignore[arg-type]
        self.num_samples = max(math.ceil(wanted / self.num_replicas), min_batches * batch_size)
        self.total_size = self.num_samples * self.num_replicas
        self.size = len(dataset)

    def __iter__(self) -> Iterator[int]:
        """This rank's share of the epoch."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        passes = math.ceil(self.total_size / self.size)
        order = torch.cat([torch.randperm(self.size, generator=generator) for _ in range(passes)])
        return iter(order[self.rank : self.total_size : self.num_replicas].tolist())
