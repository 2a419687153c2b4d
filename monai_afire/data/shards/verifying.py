# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Reading of all bytes of shards, for instance after they were copied to another machine."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
from tqdm import tqdm

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.data.datalist.shard_folders import check_shards
from monai_afire.transforms.radiograph_io.shards import INDEX_NAME, shard_name
from monai_afire.utils.text import first_few

__all__ = ["verify_shards"]


def verify_shards(folder: str | os.PathLike, progress: bool = True) -> str:
    """
    Compare every image of a folder of shards with the checksum that it was written with.

    Args:
        folder: of the shards.
        progress: show a bar.

    Returns:
        One line that says how many images are whole.

    Raises:
        DatalistError: When shards or index are missing or cut, or images are damaged; the first few are named by their
            shard and place.
        OSError: when the disk fails.
    """
    root = Path(folder).expanduser()
    manifest = check_shards(root)
    index = np.load(root / INDEX_NAME, mmap_mode="r", allow_pickle=False)
    index = index[np.lexsort((index["offset"], index["shard"]))]  # as they lie: read from front to back
    damaged = []
    starts = np.searchsorted(index["shard"], np.arange(len(manifest["shards"]) + 1))
    for number in tqdm(range(len(manifest["shards"])), "shards", disable=not progress):
        with open(root / shard_name(number), "rb") as stream:
            for entry in index[starts[number] : starts[number + 1]]:
                stream.seek(int(entry["offset"]))
                if zlib.crc32(stream.read(int(entry["size"]))) != int(entry["crc"]):
                    damaged.append(f"{shard_name(number)} at byte {int(entry['offset'])}")
    if damaged:
        text = f"{len(damaged):,} of {len(index):,} files are damaged: {first_few(damaged)}"
        raise DatalistError(f"{root}: {text}; copy these shards again, or write them again.")
    return f"{root}: {len(index):,} files in {len(manifest['shards']):,} shards are as they were written."
