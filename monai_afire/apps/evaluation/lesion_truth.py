# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Masks of the lesions that a list names, by their files or their boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from monai_afire.transforms.radiograph import LoadRadiograph

_MASK_KEYS = ("lesion_truth", "mask")


def lesion_truth(
    item: Mapping[str, Any], spatial_shape: Sequence[int], size: Sequence[int]
) -> np.ndarray | None:
    """
    Mask of an item's lesions, from its mask ("lesion_truth" or "mask") or else by its boxes; None without either.

    Boxes are [x, y, width, height] in pixels of the image, which has the shape ``spatial_shape``. The mask is bool with
    ``size`` rows and columns; a pixel that a box touches belongs to it.
    """
    path = next((item[key] for key in _MASK_KEYS if item.get(key)), None)
    if path is not None:
        mask = torch.as_tensor(np.asarray(LoadRadiograph(scaling="none")(path))).float() > 0
        resized = F.interpolate(mask[None].float(), size=tuple(size), mode="area")[0, 0]
        return (resized >= 0.5).numpy()
    boxes = item.get("boxes")
    if not boxes:
        return None
    truth = np.zeros(tuple(size), dtype=bool)
    for x, y, width, height in boxes:
        rows = _touched(y, height, size[0], int(spatial_shape[0]))
        columns = _touched(x, width, size[1], int(spatial_shape[1]))
        truth[rows, columns] = True
    return truth


def _touched(start: float, length: float, target: int, source: int) -> slice:
    """
    Pixels that a side of a box touches after resizing; a slice's negative end would count from the other side.

    Multiplied before it is divided: the quotient of whole numbers is exact where it is whole.
    """
    first, last = start * target / source, (start + length) * target / source
    return slice(max(int(np.floor(first)), 0), max(int(np.ceil(last)), 0))
