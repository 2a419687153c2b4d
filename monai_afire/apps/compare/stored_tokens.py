# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tokens of images, which may be more than fit into memory: a file for each encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import DataLoader, Dataset
from monai.transforms import Compose
from monai.utils import convert_to_tensor
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from tqdm.auto import tqdm

from monai_afire.apps.compare.encoders import ComparedEncoder
from monai_afire.transforms import AddControlledLesiond, LoadRadiographd, fit_images
from monai_afire.utils.device import default_device, default_num_workers
from monai_afire.utils.distributed import barrier, global_rank, share_of

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
    Read each image once, and encode it by all encoders.

    Each rank encodes its share of the batches, and all must call it.

    Args:
        items: with "image", the path of a file, and perhaps "lesion" for
            :class:`monai_afire.transforms.AddControlledLesiond`.
        encoders: to encode with.
        folder: of the tokens, a file for each encoder.
        title: of the progress bar.

    Returns:
        Tokens ``(N, L, D)`` by the encoder's name, on disk.

    Raises:
        RuntimeError: for a file that cannot be read; its cause names the file and the reason.
        ValueError: when an encoder's tokens are not finite.
    """
    files = [folder / f"{title}_{number}.npy" for number in range(len(encoders))]
    if global_rank() == 0:
        for each, file in zip(encoders, files, strict=True):
            shape = len(items), prod(each.encoder.grid_size), each.encoder.hidden_size
            open_memmap(file, "w+", np.float16, shape).flush()
    barrier()
    tokens = [open_memmap(file, "r+") for file in files]
    own = share_of([range(len(items))[at : at + _BATCH] for at in range(0, len(items), _BATCH)])
    device = default_device()
    resize = fit_images("image", size=_SIDE, mode="area")
    prepare = Compose([LoadRadiographd("image"), resize, AddControlledLesiond("image")])
    loader = DataLoader(
        Dataset([items[row] for rows in own for row in rows], prepare),
        batch_size=_BATCH,
        num_workers=default_num_workers(device),
        collate_fn=list,
    )
    bar = tqdm(loader, title, unit="batch", dynamic_ncols=True, disable=global_rank() > 0)
    for rows, batch in zip(own, bar, strict=True):
        images = torch.stack([convert_to_tensor(item["image"], track_meta=False) for item in batch])
        for each, stored in zip(encoders, tokens, strict=True):
            stored[rows.start : rows.stop] = each.encode(images, device)
    for stored in tokens:
        stored.flush()
    barrier()
    return {each.name: stored for each, stored in zip(encoders, tokens, strict=True)}
