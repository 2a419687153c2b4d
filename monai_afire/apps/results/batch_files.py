# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A list of images that one or many processes work through: a file for each batch, which the next run finds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from monai.data import DataLoader, Dataset
from tqdm.auto import tqdm

from monai_afire.utils.distributed import barrier, global_rank, share_of
from monai_afire.utils.files import atomic_path


def images_digest(key: str, items: Sequence[Mapping[str, Any]]) -> str:
    """Digest of what results depend on: a key, and paths, dates and painted lesions of the images."""
    dates = [os.path.exists(item["image"]) and os.path.getmtime(item["image"]) for item in items]
    facts = [
        [item["image"], item.get("lesion"), date] for item, date in zip(items, dates, strict=True)
    ]
    return sha256(json.dumps({"key": key, "images": facts}).encode()).hexdigest()[:16]


def batch_names(items: Sequence[Any], batch_size: int) -> dict[str, Sequence[Any]]:
    """
    The batches of a list by the names of their files.

    Example:
        >>> batch_names(["a", "b", "c"], 2)
        {'0.pt': ['a', 'b'], '2.pt': ['c']}
    """
    return {
        f"{start}.pt": items[start : start + batch_size]
        for start in range(0, len(items), batch_size)
    }


def remaining_batches(
    items: Sequence[Mapping[str, Any]],
    batch_size: int,
    folders: Sequence[Path],
    prepare: Callable[[Any], Any],
    num_workers: int,
    title: str,
) -> Iterator[tuple[str, list[Any]]]:
    """
    Iterate over this process's share of the batches that have no file yet. All ranks must call it, and go to its end.

    An image is always in the same batch, so that its result does not depend on stops and on the number of processes.

    Args:
        items: of the list.
        batch_size: images of a batch.
        folders: where each batch is going to have a file, see :func:`save_batch`.
        prepare: transform of an item.
        num_workers: processes that prepare.
        title: of the progress bar, which the main rank shows.

    Yields:
        Name of the file, and the prepared items. After the last one all ranks have theirs.
    """
    batches = batch_names(items, batch_size)
    left = [name for name in batches if not all((folder / name).is_file() for folder in folders)]
    barrier()  # nobody writes before all have looked
    own = share_of(left)
    data = Dataset([item for name in own for item in batches[name]], prepare)
    loader = DataLoader(data, batch_size=batch_size, num_workers=num_workers, collate_fn=list)
    bar = tqdm(loader, desc=title, unit="batch", dynamic_ncols=True, disable=global_rank() > 0)
    for batch, name in zip(bar, own, strict=True):
        yield name, batch
    barrier()


def save_batch(result: Any, path: Path) -> None:
    """Save tensors, numbers and texts of a batch; a file that is there is complete."""
    with atomic_path(path) as temporary:
        torch.save(result, temporary)


def saved_batches(folder: Path, names: Iterable[str]) -> Iterator[Any]:
    """
    Load the results of batches in their order.

    Raises:
        RuntimeError: when one is missing.
    """
    for name in names:
        if not (folder / name).is_file():
            raise RuntimeError(
                f"{folder / name} is missing: all processes need the same list of images, and all machines this folder"
            )
        yield torch.load(folder / name, weights_only=True)
