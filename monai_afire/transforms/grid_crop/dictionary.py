# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Dictionary transform that adds two overlapping crops of whole grid cells per image (PEAC, ACE)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from monai.config import KeysCollection
from monai.utils import ensure_tuple

from monai_afire.transforms.base import RandomArrayTransformd
from monai_afire.transforms.grid_crop.array import GridCropPair


class GridCropPaird(RandomArrayTransformd):
    """
    Dictionary-based wrapper of ``GridCropPair``: adds ``<key>_1``, ``<key>_2``, ``offset_1`` and ``offset_2``.

    All keys share one random draw, hence one pair of offsets; ``keys`` stay as they are.

    Args:
        keys: keys of the images (C, *S).
        grid: cells per axis.
        cell: pixels per cell.
        crops: cells per axis of the first and the second crop, (k1, k2).
        out_size: pixels per axis to which both crops are resized; None leaves them at ``crops * cell``.
        jitter: shift the grid by a random part of a cell; costs one cell per axis.
        align: ``offset_1 - offset_2`` is a multiple of it.
        min_overlap: smallest overlap in cells along each axis.
        offset_keys: new keys of the offsets in cells, int64 arrays (spatial dims,).
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range, or when the new keys are not all different.

    Example:
        >>> import torch
        >>> from monai_afire.transforms.grid_crop import GRID_CROP_SETTINGS
        >>> transform = GridCropPaird("image", **GRID_CROP_SETTINGS["ace_448"]).set_random_state(seed=0)
        >>> data = transform({"image": torch.rand(1, 512, 400)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 512, 400), 'image_1': (1, 448, 448), 'image_2': (1, 448, 448), 'offset_1': (2,), 'offset_2': (2,)}
    """

    backend = GridCropPair.backend

    def __init__(
        self,
        keys: KeysCollection,
        grid: int | Sequence[int] = 19,
        cell: int | Sequence[int] = 32,
        crops: Sequence[int] = (14, 14),
        out_size: int | Sequence[int] | None = None,
        jitter: bool = True,
        align: int = 1,
        min_overlap: int = 1,
        offset_keys: Sequence[str] = ("offset_1", "offset_2"),
        allow_missing_keys: bool = False,
    ) -> None:
        self.offset_keys = ensure_tuple(offset_keys)
        if len(self.offset_keys) != 2:
            raise ValueError(f"offset_keys must be two keys, got {self.offset_keys}.")
        transform = GridCropPair(grid, cell, crops, out_size, jitter, align, min_overlap)
        new_keys = (*(f"{key}_{n}" for key in ensure_tuple(keys) for n in (1, 2)), *self.offset_keys)
        super().__init__(keys, transform, new_keys, allow_missing_keys)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """
        Add two crops per key and their offsets to a copy of the data.

        Args:
            data: dictionary with the images (C, *S).

        Returns:
            The data with the new entries.
        """
        output = dict(data)
        for key, (crop_1, crop_2, offset_1, offset_2) in self.transformed(data):
            output.update({f"{key}_1": crop_1, f"{key}_2": crop_2})
            output.update(zip(self.offset_keys, (offset_1, offset_2), strict=True))
        return output


GridCropPairD = GridCropPairDict = GridCropPaird
