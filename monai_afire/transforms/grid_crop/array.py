# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Array transform that cuts two overlapping crops of whole grid cells out of an image (PEAC, ACE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from monai.config.type_definitions import NdarrayOrTensor
from monai.data import MetaTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import Randomizable, Transform
from monai.utils import TransformBackends, convert_to_dst_type, convert_to_tensor, ensure_tuple, ensure_tuple_rep
from torch import Tensor

from monai_afire.transforms.grid_crop.geometry import (
    check_positive,
    cover_size,
    moved_affine,
    offset_pairs,
    resize_separable,
)

# The arguments of ``GridCropPair`` and ``GridCropPaird`` in the papers' settings.
GRID_CROP_SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "peac_448": MappingProxyType({"grid": 19, "cell": 32, "crops": (14, 14), "jitter": True, "align": 1}),
        "peac_224": MappingProxyType({"grid": 19, "cell": 16, "crops": (14, 14), "jitter": True, "align": 1}),
        "ace_448": MappingProxyType(
            {"grid": 32, "cell": 32, "crops": (14, 28), "out_size": 448, "jitter": False, "align": 2}
        ),
    }
)


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
        self.grid, self.cell = check_positive("grid", ensure_tuple(grid)), check_positive("cell", ensure_tuple(cell))
        self.crops = check_positive("crops", ensure_tuple(crops))
        self.out_size = None if out_size is None else check_positive("out_size", ensure_tuple(out_size))
        (self.align,) = check_positive("align", (align,))
        (self.min_overlap,) = check_positive("min_overlap", (min_overlap,))
        self.jitter = bool(jitter)
        if len(self.crops) != 2:
            raise ValueError(f"crops must be two numbers of cells, (k1, k2), got {self.crops}.")
        for cells in self.grid:
            self.axis_pairs(cells)
        self.offset_1: np.ndarray | None = None
        self.offset_2: np.ndarray | None = None
        self.pixel_offset: np.ndarray | None = None

    def axis_pairs(self, grid: int) -> np.ndarray:
        """Allowed pairs of offsets (pairs, 2) along an axis of ``grid`` cells."""
        return offset_pairs(grid - self.jitter, (self.crops[0], self.crops[1]), self.min_overlap, self.align)

    def randomize(self, spatial_dims: int) -> None:
        """
        Draw the shift of the grid in pixels and the offsets of both crops in cells.

        Args:
            spatial_dims: number of spatial dimensions of the image.
        """
        grid, cell = self.per_axis("grid", spatial_dims), self.per_axis("cell", spatial_dims)
        shift = [self.R.randint(pixels) if self.jitter else 0 for pixels in cell]
        tables = [self.axis_pairs(cells) for cells in grid]
        pairs = np.stack([table[self.R.randint(len(table))] for table in tables]).astype(np.int64)
        self.pixel_offset, self.offset_1, self.offset_2 = np.asarray(shift, np.int64), pairs[:, 0], pairs[:, 1]

    def per_axis(self, name: str, spatial_dims: int) -> tuple[int, ...]:
        """The setting ``name`` with one number for each axis."""
        value: tuple[int, ...] = getattr(self, name)
        if len(value) not in (1, spatial_dims):
            raise ValueError(
                f"{name} has {len(value)} numbers, but the image has {spatial_dims} spatial dimensions: give one "
                f"number, or one for each of them."
            )
        return value if len(value) == spatial_dims else ensure_tuple_rep(value[0], spatial_dims)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
        """
        Cut two crops out of an image, which itself stays as it is.

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
        spatial_dims = image.ndim - 1
        if spatial_dims < 1 or 0 in image.shape:
            raise ValueError(f"The image must be (C, *S) with no empty axis, got shape {tuple(image.shape)}.")
        if randomize:
            self.randomize(spatial_dims)
        shift, offset_1, offset_2 = self.pixel_offset, self.offset_1, self.offset_2
        if shift is None or offset_1 is None or offset_2 is None or len(shift) != spatial_dims:
            raise RuntimeError(
                f"GridCropPair cannot repeat its last crops: there are none with {spatial_dims} spatial dimensions. "
                f"Call it with randomize=True first."
            )
        plain = convert_to_tensor(image, track_meta=False)
        compute_dtype = torch.float64 if plain.dtype == torch.float64 else torch.float32
        cell, grid = self.per_axis("cell", spatial_dims), self.per_axis("grid", spatial_dims)
        target = [cells * pixels for cells, pixels in zip(grid, cell, strict=True)]
        with torch.no_grad():
            covered = resize_separable(plain.to(compute_dtype), cover_size(plain.shape[1:], target))
            corner = (np.asarray(covered.shape[1:]) - target) // 2 + shift
            crop_1, crop_2 = (
                self.cut(covered, image, corner + offset * cell, np.asarray(cell) * crop)
                for offset, crop in zip((offset_1, offset_2), self.crops, strict=True)
            )
        return crop_1, crop_2, offset_1.copy(), offset_2.copy()

    def cut(self, covered: Tensor, image: Tensor, start: np.ndarray, size: np.ndarray) -> Tensor:
        """Cut one crop out of the resized image, resize it and give it the type and metadata of the image."""
        box = [slice(None), *(slice(first, first + length) for first, length in zip(start, size, strict=True))]
        result = covered[tuple(box)]
        out_size = size if self.out_size is None else np.asarray(self.per_axis("out_size", len(size)))
        # A crop that needed no resizing still is a view of the resized (or of the given) image.
        result = resize_separable(result, out_size.tolist()).clone(memory_format=torch.contiguous_format)
        result = result.to(image.dtype) if image.is_floating_point() else result
        if not isinstance(image, MetaTensor):
            return result
        crop_image: MetaTensor = convert_to_dst_type(result, image, dtype=result.dtype)[0]
        to_covered = np.asarray(image.shape[1:]) / np.asarray(covered.shape[1:])
        scale = size / out_size
        first_pixel = (start + 0.5 * scale) * to_covered - 0.5
        crop_image.affine = moved_affine(image.affine, scale * to_covered, first_pixel)
        return crop_image
