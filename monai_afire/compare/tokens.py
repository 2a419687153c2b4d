# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Each image is read and encoded once: tokens in files that the next run finds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
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

from monai_afire.compare.encoders import ComparedEncoder
from monai_afire.transforms import AddControlledLesiond, LoadRadiographd, fit_images
from monai_afire.utils.device import default_device, default_num_workers
from monai_afire.utils.files import atomic_path

_BATCH = 32
_SIDE = 512  # of the pictures that lesions are painted into, and that every encoder shrinks to its size


def encode_images(
    items: Sequence[Mapping[str, Any]], encoders: Sequence[ComparedEncoder], folder: Path, title: str
) -> dict[str, NDArray[np.float16]]:
    """
    Encode images by all encoders, those that are not in the folder yet. An interrupted call goes on.

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
    tokens, device = {each.name: _opened(each, items, folder) for each in encoders}, default_device()
    # the last number of an image is written last
    rows = np.flatnonzero(np.any([np.isnan(stored[:, -1, -1]) for stored in tokens.values()], axis=0)).tolist()
    resize = fit_images("image", size=_SIDE, spatial_dims=2, mode="area")
    prepare = Compose([LoadRadiographd("image"), resize, AddControlledLesiond("image")])
    data = Dataset([{**items[row], "row": row} for row in rows], prepare)
    loader = DataLoader(data, batch_size=_BATCH, num_workers=default_num_workers(device), collate_fn=list)
    for batch in tqdm(loader, desc=title, unit="batch"):
        images = torch.stack([convert_to_tensor(item["image"], track_meta=False) for item in batch])
        own = [item["row"] for item in batch]
        for each in encoders:
            if np.isnan(tokens[each.name][own, -1, -1]).any():
                tokens[each.name][own] = each.encode(images, device)
    return tokens


def _opened(encoder: ComparedEncoder, items: Sequence[Mapping[str, Any]], folder: Path) -> NDArray[np.float16]:
    """The file of an encoder's tokens of these images, NaN where there are none yet."""
    dates = [os.path.exists(item["image"]) and os.path.getmtime(item["image"]) for item in items]  # False in shards
    facts = [(item["image"], item.get("lesion"), date) for item, date in zip(items, dates, strict=True)]
    digest = sha256(json.dumps([encoder.key, facts]).encode(errors="surrogateescape")).hexdigest()[:16]
    file = folder / f"{digest}.npy"
    if not file.is_file():
        shape = len(items), prod(encoder.encoder.grid_size), encoder.encoder.hidden_size
        with atomic_path(file) as temporary:
            open_memmap(temporary, "w+", np.float16, shape)[:] = np.nan
    return open_memmap(file, "r+")
