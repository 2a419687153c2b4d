# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The picture of an image that results are drawn on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.utils import CommonKeys
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F


def batch_picture(batch: Mapping[str, Any], row: int) -> NDArray[np.uint8]:
    """Gray "picture" of an image in a batch, ``(rows, columns)``; else the image itself."""
    if "picture" in batch:
        return torch.as_tensor(batch["picture"][row]).float().mean(0).to(torch.uint8).cpu().numpy()
    image = batch[CommonKeys.IMAGE][row].float().mean(0).cpu()
    low, high = image.aminmax()
    if low < 0 or high > 1:
        image = (image - low) / (high - low)
    return (image * 255).round().to(torch.uint8).numpy()


def in_proportion(picture: NDArray[np.uint8], shape: Sequence[int]) -> NDArray[np.float32]:
    """The picture in [0, 1] in the proportions of its file, its longer side unchanged."""
    scale = max(picture.shape) / max(shape)
    rows, columns = (max(1, round(length * scale)) for length in shape)
    resized = Image.fromarray(picture).resize((columns, rows), Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.float32) / np.float32(255)


def resized_maps(maps: NDArray, shape: Sequence[int]) -> NDArray[np.float32]:
    """Maps ``(C, h, w)``, linearly interpolated to another height and width."""
    values = torch.from_numpy(np.ascontiguousarray(maps, dtype=np.float32))
    return F.interpolate(values[None], size=tuple(shape), mode="bilinear")[0].numpy()
