# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Each image is read and encoded once: tokens in files that the next run finds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.transforms import Compose
from monai.utils import convert_to_tensor
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from monai_afire.apps.compare.encoders import ComparedEncoder
from monai_afire.apps.results.batch_files import (
    batch_names,
    images_digest,
    remaining_batches,
    save_batch,
    saved_batches,
)
from monai_afire.transforms import AddControlledLesiond, LoadRadiographd, fit_images
from monai_afire.utils.device import default_device, default_num_workers
from monai_afire.utils.distributed import by_main_rank
from monai_afire.utils.files import atomic_path, remove_leftovers

_BATCH = 32
# of the pictures that lesions are painted into, and that every encoder shrinks to its size
_SIDE = 512


def encode_images(
    items: Sequence[Mapping[str, Any]],
    encoders: Sequence[ComparedEncoder],
    folder: Path,
    title: str,
) -> dict[str, NDArray[np.float16]]:
    """
    Encode images by all encoders, those that are not in the folder yet. An interrupted call goes on.

    Each rank encodes its share of the batches, and all must call it.

    Args:
        items: with "image", the path of a file, and perhaps "lesion" for
            :class:`monai_afire.transforms.AddControlledLesiond`.
        encoders: to encode with.
        folder: of the tokens. A file's name is a digest of the encoder, and of path and date of the images.
        title: of the progress bar.

    Returns:
        Tokens ``(N, L, D)`` by the encoder's name, on disk.

    Raises:
        RuntimeError: for a file that cannot be read; its cause names the file and the reason.
        ValueError: when an encoder's tokens are not finite.
    """
    files = {each.name: folder / f"{images_digest(each.key, items)}.npy" for each in encoders}
    parts = {
        each.name: files[each.name].with_suffix("")
        for each in encoders
        if not files[each.name].is_file()
    }
    resize = fit_images("image", size=_SIDE, mode="area")
    prepare = Compose([LoadRadiographd("image"), resize, AddControlledLesiond("image")])
    device, own = default_device(), [*parts.values()]
    for name, batch in remaining_batches(
        items, _BATCH, own, prepare, default_num_workers(device), title
    ):
        images = torch.stack([convert_to_tensor(item["image"], track_meta=False) for item in batch])
        for each in encoders:
            if each.name in parts and not (file := parts[each.name] / name).is_file():
                save_batch(torch.from_numpy(each.encode(images, device)), file)
    by_main_rank(_join, encoders, files, len(items))
    return {name: open_memmap(file, "r+") for name, file in files.items()}


def _join(encoders: Sequence[ComparedEncoder], files: Mapping[str, Path], count: int) -> None:
    """Bring the tokens of all batches into one file of each encoder."""
    names = batch_names(range(count), _BATCH)
    for each in encoders:
        file, part = files[each.name], files[each.name].with_suffix("")
        remove_leftovers(file)
        if not file.is_file():
            shape = count, prod(each.encoder.grid_size), each.encoder.hidden_size
            with atomic_path(file) as temporary:
                tokens = open_memmap(temporary, "w+", np.float16, shape)
                for rows, batch in zip(names.values(), saved_batches(part, names), strict=True):
                    tokens[rows] = batch
        shutil.rmtree(part, ignore_errors=True)
