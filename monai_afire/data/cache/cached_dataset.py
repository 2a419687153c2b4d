# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Data set with a cache of the deterministic transforms' results: in memory, on disk or none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from monai.data import CacheDataset, Dataset
from monai.transforms import Compose
from monai.utils import look_up_option

from monai_afire.data.cache.disk_cache import DiskCachedDataset
from monai_afire.utils.distributed import global_rank

_DISK_BITS = {"disk": None, "disk16": 16, "disk8": 8}
CACHES = ("memory", *_DISK_BITS, "none")


def cached_dataset(
    data: Sequence[Mapping[str, Any]],
    transform: Callable,
    cache: str = "memory",
    cache_dir: str | os.PathLike | None = None,
    num_workers: int = 2,
    progress: bool = True,
) -> Dataset:
    """
    Data set that runs the transforms before the first random one once for each item, not in every epoch.

    The choice changes speed and space only: all but "disk16" and "disk8" give identical items.

    Args:
        data: items of a datalist.
        transform: ``Compose``, or a list of transforms; nested ones count as one list.
        cache: "memory" (:py:class:`monai.data.CacheDataset`, filled before the first epoch); "disk" (files of a
            :class:`DiskCachedDataset`, filled during the first epoch, kept for later runs); "disk16" and "disk8" the
            same in 2 or 1 bytes per pixel instead of 4, rounded to 1/65535 or 1/255; "none".
        cache_dir: folder for the files of "disk".
        num_workers: threads that fill the memory.
        progress: show a bar while the memory is filled; in a process group the main rank alone does.

    Returns:
        The data set.

    Raises:
        ValueError: for another ``cache``, or "disk" without ``cache_dir``.
        OSError: when ``cache_dir`` cannot be written to.

    Example:
        >>> import tempfile, torch
        >>> from monai.transforms import EnsureTyped
        >>> items, transform = [{"image": torch.ones(1, 4, 4)}], [EnsureTyped("image")]
        >>> dataset = cached_dataset(items, transform, "disk", tempfile.mkdtemp())
        >>> type(dataset).__name__, float(dataset[0]["image"].sum())
        ('DiskCachedDataset', 16.0)
    """
    look_up_option(cache, CACHES)
    # MONAI takes a nested Compose for random, and would cache nothing of it
    transform = (transform if isinstance(transform, Compose) else Compose(transform)).flatten()
    if cache == "none":
        return Dataset(data, transform)
    if cache == "memory":
        progress = progress and global_rank() == 0
        return CacheDataset(data, transform, num_workers=num_workers, progress=progress)
    if not cache_dir:
        raise ValueError(
            f"the cache {cache!r} needs a folder: give cache_dir, or choose cache='memory' or 'none'"
        )
    return DiskCachedDataset(data, transform, cache_dir, bits=_DISK_BITS[cache])
