# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loaders of a training: MONAI's, with the settings that every training has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from monai.data import DataLoader, Dataset
from torch.utils.data import RandomSampler, Sampler

from monai_afire.data.samplers import DistributedRandomSampler
from monai_afire.utils.device import pins_memory
from monai_afire.utils.distributed import has_process_group


class TrainingLoader(DataLoader):
    """
    MONAI's ``DataLoader`` in a new order in every epoch, in one process or in a process group.

    Batches are full: an incomplete last one is left out, unless it is the only one. Memory is pinned where the device
    gains by it.

    Args:
        dataset: the data set.
        batch_size: images in a batch of one process.
        num_workers: processes that load images.
        seed: of the order in a process group; else PyTorch's.
        min_batches: least number of batches per epoch of each process.
        device: that the run trains on.
        sampler: None for PyTorch's ``RandomSampler``, or in a process group ``DistributedRandomSampler``.
        kwargs: further arguments of ``DataLoader``.

    Example:
        >>> from monai.data import Dataset
        >>> dataset = Dataset([{"image": torch.zeros(1)}] * 5)
        >>> len(TrainingLoader(dataset, batch_size=2)), len(TrainingLoader(dataset, batch_size=8))
        (2, 1)
        >>> len(TrainingLoader(dataset, batch_size=2, min_batches=4))
        4
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        num_workers: int = 0,
        seed: int = 0,
        min_batches: int = 0,
        device: torch.device | str = "cpu",
        sampler: Sampler | None = None,
        **kwargs: Any,
    ) -> None:
        if sampler is None and has_process_group():
            sampler = DistributedRandomSampler(
                dataset, seed=seed, min_batches=min_batches, batch_size=batch_size
            )
        elif sampler is None:
            num_samples = max(len(dataset), min_batches * batch_size)
            sampler = RandomSampler(dataset, num_samples=num_samples)
        settings = {"drop_last": len(sampler) >= batch_size, "pin_memory": pins_memory(device)}  # type: ignore[arg-type]
        super().__init__(
            dataset, num_workers, batch_size=batch_size, sampler=sampler, **{**settings, **kwargs}
        )


def loader_like(loader: DataLoader, items: Sequence[Mapping[str, Any]]) -> DataLoader:
    """
    A loader of other images: in their order, with a loader's transforms, batch size and processes, without a cache.

    Args:
        loader: of a MONAI ``Dataset``.
        items: of a datalist.

    Example:
        >>> validation = DataLoader(Dataset([{"image": 1.0}], transform=dict), batch_size=2)
        >>> [batch["image"].tolist() for batch in loader_like(validation, [{"image": 3.0}, {"image": 5.0}])]
        [[3.0, 5.0]]
    """
    source: Any = loader.dataset
    return DataLoader(
        Dataset(items, source.transform), loader.num_workers, batch_size=loader.batch_size
    )
