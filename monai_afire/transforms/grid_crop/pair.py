# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Two overlapping crops of whole grid cells out of an image (PEAC, ACE)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import Randomizable, Transform
from monai.utils import TransformBackends, convert_to_tensor, ensure_tuple
from torch import Tensor

from monai_afire.transforms.argument_checks import check_positive, check_shape, per_axis
from monai_afire.transforms.base import RandomArrayTransformd, no_last_draw
from monai_afire.transforms.grid_crop.geometry import (
    cover_size,
    float_values,
    offset_pairs,
    resize_separable,
    resized_box,
)

# The arguments of ``GridCropPair`` and ``GridCropPaird`` in the papers' settings.
GRID_CROP_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "peac_448": {"grid": 19, "cell": 32, "crops": (14, 14), "jitter": True, "align": 1},
    "peac_224": {"grid": 19, "cell": 16, "crops": (14, 14), "jitter": True, "align": 1},
    "ace_448": {
        "grid": 32,
        "cell": 32,
        "crops": (14, 28),
        "out_size": 448,
        "jitter": False,
        "align": 2,
    },
}


class GridCropPair(Randomizable, Transform):
    """
    Two crops of whole cells of a grid over one image, so that their patches correspond exactly where they overlap.

    The image is resized to ``grid * cell`` pixels per axis (aspect kept, up or down, the surplus cut off equally on
    both sides). With ``jitter``, ``(grid - 1) * cell`` pixels are cut out of it at a random offset of [0, cell) pixels,
    so that the grid lies anywhere on the image. Of the cells that remain, two boxes of ``crops[0]`` and ``crops[1]``
    cells per axis are cut out; along each axis the pair of cell offsets is uniform over all pairs that overlap in at
    least ``min_overlap`` cells and whose difference is a multiple of ``align``. Defaults: PEAC with 448-pixel crops;
    ``GRID_CROP_SETTINGS`` has the arguments of "peac_448", "peac_224" and "ace_448". For patches of half a cell (ACE
    with a ViT/16) halve ``cell`` and double ``grid`` and ``crops``.

    Args:
        grid: cells per axis: one number, or one for each axis.
        cell: pixels per cell: one number, or one for each axis.
        crops: cells per axis of the first and the second crop, (k1, k2).
        out_size: pixels per axis to which both crops are resized; None leaves them at ``crops * cell``.
        jitter: shift the grid by a random part of a cell; costs one cell per axis.
        align: ``offset_1 - offset_2`` is a multiple of it. For crops of different scale this is the ratio k2/k1 of
            their patches: each patch of the second crop then is a whole block of patches of the first.
        min_overlap: smallest overlap in cells along each axis.

    Raises:
        ValueError: on settings out of range or no possible pair of crops.

    Example:
        >>> import torch
        >>> transform = GridCropPair(**GRID_CROP_SETTINGS["peac_224"]).set_random_state(seed=0)
        >>> crop_1, crop_2, offset_1, offset_2 = transform(torch.rand(1, 400, 320))
        >>> tuple(crop_1.shape), tuple(crop_2.shape), offset_1.shape, offset_1.dtype
        ((1, 224, 224), (1, 224, 224), (2,), dtype('int64'))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012

    def __init__(
        self,
        grid: int | Sequence[int] = 19,
        cell: int | Sequence[int] = 32,
        crops: Sequence[int] = (14, 14),
        out_size: int | Sequence[int] | None = None,
        jitter: bool = True,
        align: int = 1,
        min_overlap: int = 1,
    ) -> None:
        self.grid = check_positive("grid", grid)
        self.cell = check_positive("cell", cell)
        self.crops = check_positive("crops", crops)
        self.out_size = None if out_size is None else check_positive("out_size", out_size)
        (self.align,) = check_positive("align", align)
        (self.min_overlap,) = check_positive("min_overlap", min_overlap)
        self.jitter = bool(jitter)
        if len(self.crops) != 2:
            raise ValueError(f"crops must be two numbers of cells, (k1, k2), got {self.crops}.")
        for cells in self.grid:
            self._axis_pairs(cells)
        self.offset_1: np.ndarray | None = None
        self.offset_2: np.ndarray | None = None
        self.pixel_offset: np.ndarray | None = None

    def _axis_pairs(self, grid: int) -> np.ndarray:
        """Allowed pairs of offsets (pairs, 2) along an axis of ``grid`` cells."""
        return offset_pairs(
            grid - self.jitter, (self.crops[0], self.crops[1]), self.min_overlap, self.align
        )

    def randomize(self, spatial_dims: int) -> None:
        """
        Draw the shift of the grid in pixels and the offsets of both crops in cells.

        Args:
            spatial_dims: number of spatial dimensions of the image.
        """
        grid = per_axis("grid", self.grid, spatial_dims)
        cell = per_axis("cell", self.cell, spatial_dims)
        self.pixel_offset = np.zeros(spatial_dims, np.int64)
        if self.jitter:
            self.pixel_offset[:] = [self.R.randint(pixels) for pixels in cell]
        tables = [self._axis_pairs(cells) for cells in grid]
        pairs = np.stack([table[self.R.randint(len(table))] for table in tables]).astype(np.int64)
        self.offset_1, self.offset_2 = pairs.T

    def __call__(
        self, img: NdarrayOrTensor, randomize: bool = True
    ) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
        """
        Cut two crops out of an image without changing it.

        Args:
            img: image (C, *S) of any size and value range; integer images give float32 crops. A MetaTensor gives
                MetaTensors whose affine matrices hold the crops' places (the crops cannot be inverted).
            randomize: draw new offsets; False repeats those of the last call.

        Returns:
            First and second crop, (C, *out_size) each, and their offsets in cells from the first cell of the
            (shifted) grid, int64 (spatial dims,) each.

        Raises:
            ValueError: on an image of wrong shape or settings for another number of dimensions.
            RuntimeError: when ``randomize`` is False and nothing was drawn for this number of dimensions before.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        check_shape(image)
        dims = image.ndim - 1
        if randomize:
            self.randomize(dims)
        shift, offset_1, offset_2 = self.pixel_offset, self.offset_1, self.offset_2
        if shift is None or offset_1 is None or offset_2 is None or len(shift) != dims:
            raise no_last_draw(self, f"an image of {dims} spatial dimensions")
        cell = np.asarray(per_axis("cell", self.cell, dims))
        target = np.asarray(per_axis("grid", self.grid, dims)) * cell
        covered = resize_separable(
            float_values(image), cover_size(image.shape[1:], target.tolist())
        )
        corner = (np.asarray(covered.shape[1:]) - target) // 2 + shift
        crops = []
        for offset, crop in zip((offset_1, offset_2), self.crops, strict=True):
            size = cell * crop
            out_size = size.tolist()
            if self.out_size is not None:
                out_size = per_axis("out_size", self.out_size, dims)
            crops.append(resized_box(covered, image, corner + offset * cell, size, out_size))
        return crops[0], crops[1], offset_1.copy(), offset_2.copy()


class GridCropPaird(RandomArrayTransformd):
    """
    Dictionary-based wrapper of ``GridCropPair``: adds ``<key>_1``, ``<key>_2``, ``offset_1`` and ``offset_2``.

    All keys share one random draw, hence one pair of offsets; ``keys`` do not change.

    Args:
        keys: keys of the images (C, *S).
        settings: as for ``GridCropPair``.
        offset_keys: new keys of the offsets in cells, int64 arrays (spatial dims,).
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range, or when the new keys are not all different.

    Example:
        >>> import torch
        >>> transform = GridCropPaird("image", **GRID_CROP_SETTINGS["ace_448"]).set_random_state(seed=0)
        >>> data = transform({"image": torch.rand(1, 512, 400)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 512, 400), 'image_1': (1, 448, 448), 'image_2': (1, 448, 448), 'offset_1': (2,), 'offset_2': (2,)}
    """

    array_class = GridCropPair

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        offset_keys: Sequence[str] = ("offset_1", "offset_2"),
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        self.offset_keys = ensure_tuple(offset_keys)
        if len(self.offset_keys) != 2:
            raise ValueError(f"offset_keys must be two keys, got {self.offset_keys}.")
        new_keys = (
            *(f"{key}_{n}" for key in ensure_tuple(keys) for n in (1, 2)),
            *self.offset_keys,
        )
        super().__init__(
            keys,
            *settings,
            new_keys=new_keys,
            allow_missing_keys=allow_missing_keys,
            **named_settings,
        )

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
