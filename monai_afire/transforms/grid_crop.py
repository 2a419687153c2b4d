# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pairs of overlapping crops on a common grid, and which of their patches show the same place (PEAC, ACE)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data import MetaTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import Randomizable, Transform
from monai.utils import (
    TransformBackends,
    convert_to_dst_type,
    convert_to_tensor,
    ensure_tuple_rep,
)
from torch import Tensor
from torch.nn import functional as F

from monai_afire.transforms.base import ArrayTransformd, RandomArrayTransformd

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
    cells per axis are cut out; along each axis the pair of cell offsets is uniform over all pairs that overlap in a
    cell or more and whose difference is a multiple of ``align``. Defaults: PEAC with 448-pixel crops;
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

    Raises:
        ValueError: when no two such crops fit into the grid.

    Example:
        >>> transform = GridCropPair(**GRID_CROP_SETTINGS["peac_224"]).set_random_state(seed=0)
        >>> crop_1, crop_2, offset_1, offset_2 = transform(torch.rand(1, 400, 320))
        >>> tuple(crop_1.shape), tuple(crop_2.shape), offset_1.shape, offset_1.dtype
        ((1, 224, 224), (1, 224, 224), (2,), dtype('int64'))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012
    # the last draw: places of the crops in cells, and of the grid in pixels
    offset_1: np.ndarray
    offset_2: np.ndarray
    pixel_offset: np.ndarray

    def __init__(
        self,
        grid: int | Sequence[int] = 19,
        cell: int | Sequence[int] = 32,
        crops: Sequence[int] = (14, 14),
        out_size: int | Sequence[int] | None = None,
        jitter: bool = True,
        align: int = 1,
    ) -> None:
        self.grid, self.cell = ensure_tuple_rep(grid, 2), ensure_tuple_rep(cell, 2)
        self.out_size = None if out_size is None else ensure_tuple_rep(out_size, 2)
        self.crops, self.jitter, self.align = tuple(crops), jitter, align
        for cells in self.grid:
            self._axis_pairs(cells)

    def _axis_pairs(self, cells: int) -> np.ndarray:
        """Allowed pairs of offsets (pairs, 2) along an axis of ``cells`` cells."""
        return _offset_pairs(cells - self.jitter, self.crops, self.align)

    def randomize(self, data: Any = None) -> None:
        """Draw the shift of the grid in pixels and the offsets of both crops in cells."""
        self.pixel_offset = np.zeros(2, np.int64)
        if self.jitter:
            self.pixel_offset[:] = [self.R.randint(pixels) for pixels in self.cell]
        tables = [self._axis_pairs(cells) for cells in self.grid]
        pairs = np.stack([table[self.R.randint(len(table))] for table in tables]).astype(np.int64)
        self.offset_1, self.offset_2 = pairs.T

    def __call__(
        self, img: NdarrayOrTensor, randomize: bool = True
    ) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
        """
        Cut two crops out of an image ``(C, H, W)`` of any size; ``randomize=False`` repeats the last offsets.

        Returns:
            First and second crop, ``(C, *out_size)`` each, and their offsets in cells from the first cell of the
            (shifted) grid, int64 ``(2,)`` each. Integer images give float32; a MetaTensor gives MetaTensors, whose
            affine matrices hold the crops' places (the crops cannot be inverted).
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        if randomize:
            self.randomize()
        cell = np.asarray(self.cell)
        target = np.asarray(self.grid) * cell
        covered = resize(float_values(image), _cover_size(image.shape[1:], target.tolist()))
        corner = (np.asarray(covered.shape[1:]) - target) // 2 + self.pixel_offset
        crops = []
        for offset, cells in zip((self.offset_1, self.offset_2), self.crops, strict=True):
            size = cell * cells
            out_size = size.tolist() if self.out_size is None else self.out_size
            crops.append(_resized_box(covered, image, corner + offset * cell, size, out_size))
        return crops[0], crops[1], self.offset_1.copy(), self.offset_2.copy()


class GridCropPaird(RandomArrayTransformd):
    """
    Dictionary version of :class:`GridCropPair`: adds ``<key>_1``, ``<key>_2``, ``offset_1`` and ``offset_2``.

    All keys share one random draw, hence one pair of offsets in cells, int64 arrays ``(2,)``; the images themselves do
    not change.

    Args:
        keys: keys of the images ``(C, H, W)``.
        allow_missing_keys: do not raise an error if a key is missing.

    The other arguments are those of :class:`GridCropPair`.

    Example:
        >>> transform = GridCropPaird("image", **GRID_CROP_SETTINGS["ace_448"]).set_random_state(seed=0)
        >>> data = transform({"image": torch.rand(1, 512, 400)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 512, 400), 'image_1': (1, 448, 448), 'image_2': (1, 448, 448), 'offset_1': (2,), 'offset_2': (2,)}
    """

    array = GridCropPair

    def __init__(
        self,
        keys: KeysCollection,
        grid: int | Sequence[int] = 19,
        cell: int | Sequence[int] = 32,
        crops: Sequence[int] = (14, 14),
        out_size: int | Sequence[int] | None = None,
        jitter: bool = True,
        align: int = 1,
        allow_missing_keys: bool = False,
    ) -> None:
        settings = grid, cell, crops, out_size, jitter, align
        super().__init__(keys, *settings, allow_missing_keys=allow_missing_keys)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Add two crops per key and their offsets to a copy of the data."""
        output = dict(data)
        for key, (crop_1, crop_2, *offsets) in self.transformed(data):
            output.update({f"{key}_1": crop_1, f"{key}_2": crop_2})
            output["offset_1"], output["offset_2"] = offsets
        return output


class ResizeToCover(Transform):
    """
    Resize an image, aspect kept, to the smallest size that covers a given one; nothing is cut off.

    :class:`GridCropPair` does the same first of all. Before it, with ``size`` its ``grid * cell``, this transform
    changes none of its crops, but is not random: a cached data set keeps its small result, not the whole file.

    Args:
        size: pixels per axis to cover: one number, or one for each axis.

    Example:
        >>> tuple(ResizeToCover(32)(torch.rand(1, 100, 80)).shape)
        (1, 40, 32)
    """

    backend = GridCropPair.backend

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = ensure_tuple_rep(size, 2)

    def __call__(self, img: NdarrayOrTensor) -> Tensor:
        """``(C, H', W')``, neither axis below ``size``; the affine matrix of a MetaTensor follows."""
        image = convert_to_tensor(img, track_meta=get_track_meta())
        whole = np.asarray(image.shape[1:])
        size = _cover_size(image.shape[1:], self.size)
        return _resized_box(float_values(image), image, np.zeros(2, int), whole, size)


class ResizeToCoverd(ArrayTransformd):
    """Dictionary version of :class:`ResizeToCover`, whose argument follows the ``keys`` of the images."""

    array = ResizeToCover


GridCropPairD = GridCropPairDict = GridCropPaird
ResizeToCoverD = ResizeToCoverDict = ResizeToCoverd


def overlap_masks(
    offset_1: Tensor, offset_2: Tensor, crops: Sequence[int], patch_cells: Sequence[int] = (1, 1)
) -> tuple[Tensor, Tensor]:
    """
    Masks of the patches of each crop that lie wholly inside the other crop; for a batch, on any device.

    Args:
        offset_1: offsets of the first crops in cells, ``(B, 2)``, integer.
        offset_2: offsets of the second crops in cells, ``(B, 2)``, integer.
        crops: cells per axis of the first and the second crop, (k1, k2).
        patch_cells: cells per axis that one patch of the first and of the second crop shows, (p1, p2): (1, 1) for
            PEAC; (1, 2) for ACE, whose second crop is shown at half the scale.

    Returns:
        Boolean masks ``(B, L1)`` and ``(B, L2)``, where L = (k / p) ** 2, patches in row-major order.

    Example:
        >>> mask_1, mask_2 = overlap_masks(torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), crops=(2, 2))
        >>> mask_1.tolist(), mask_2.tolist()
        ([[False, False, True, True]], [[True, True, False, False]])
    """
    (k1, k2), (p1, p2) = crops, patch_cells
    first = _inside_other(offset_1 - offset_2, k1 // p1, p1, k2)
    second = _inside_other(offset_2 - offset_1, k2 // p2, p2, k1)
    return first, second


def matching_patches(
    offset_1: Tensor, offset_2: Tensor, crops: Sequence[int], patch_cells: Sequence[int] = (1, 1)
) -> Tensor:
    """
    Index of the patch of the second crop that shows the same cells as each patch of the first; for a batch.

    With patches of different scale: the patch of the second crop that contains the patch of the first.

    Args:
        offset_1: offsets of the first crops in cells, ``(B, 2)``, integer.
        offset_2: offsets of the second crops in cells, ``(B, 2)``, integer.
        crops: cells per axis of the first and the second crop, (k1, k2).
        patch_cells: cells per axis that one patch of the first and of the second crop shows, (p1, p2).

    Returns:
        Row-major patch indices ``(B, L1)``, int64; -1 where no patch of the second crop does.

    Example:
        >>> matching_patches(torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), crops=(2, 2)).tolist()
        [[-1, -1, 0, 1]]
    """
    p1, p2 = patch_cells
    n1, n2 = crops[0] // p1, crops[1] // p2
    firsts = torch.arange(n1, device=offset_1.device) * p1
    starts = (offset_1 - offset_2).long().unsqueeze(2) + firsts
    places = starts.div(p2, rounding_mode="floor")
    found = (places >= 0) & (places < n2) & (starts - places * p2 + p1 <= p2)
    index = n2 * places[:, 0, :, None] + places[:, 1, None]
    return torch.where(found[:, 0, :, None] & found[:, 1, None], index, -1).flatten(1)


def _inside_other(shift: Tensor, patches: int, patch_cells: int, other_cells: int) -> Tensor:
    """Which patches (B, patches**2) of a crop, ``shift`` cells behind another one, lie wholly inside of it."""
    starts = shift.unsqueeze(2) + torch.arange(patches, device=shift.device) * patch_cells
    inside = (starts >= 0) & (starts + patch_cells <= other_cells)
    return (inside[:, 0, :, None] & inside[:, 1, None]).flatten(1)


@lru_cache(maxsize=64)
def _offset_pairs(cells: int, crops: tuple[int, int], align: int) -> np.ndarray:
    """All allowed pairs of cell offsets of two crops along one axis."""
    first, second = np.meshgrid(
        *(np.arange(max(cells - crop + 1, 0)) for crop in crops), indexing="ij"
    )
    overlap = np.minimum(first + crops[0], second + crops[1]) - np.maximum(first, second)
    pairs = np.argwhere((overlap >= 1) & ((first - second) % align == 0))
    if not len(pairs):
        found = (
            f"No two overlapping crops of {crops} cells, aligned by {align}, fit into {cells} cells"
        )
        raise ValueError(f"{found}: take smaller crops or a larger grid (jitter costs one cell).")
    pairs.flags.writeable = False
    return pairs


def _cover_size(spatial_size: Sequence[int], target: Sequence[int]) -> list[int]:
    """Smallest size with (up to rounding) the aspect of ``spatial_size`` that covers ``target`` in every axis."""
    sides = list(zip(target, spatial_size, strict=True))
    scale = max(goal / length for goal, length in sides)
    return [max(round(length * scale), goal) for goal, length in sides]


def float_values(image: Tensor) -> Tensor:
    """A plain copy or view of an image in float32, or in float64 if it has that type."""
    plain = convert_to_tensor(image, track_meta=False)
    return plain.to(torch.promote_types(plain.dtype, torch.float32))


@torch.no_grad()
def resize(image: Tensor, size: Sequence[int]) -> Tensor:
    """Resize an image (C, H, W) linearly, with antialiasing."""
    if tuple(image.shape[1:]) == tuple(size):
        return image
    return F.interpolate(image[None], list(size), mode="bilinear", antialias=True)[0]


def _resized_box(
    values: Tensor, image: Tensor, start: np.ndarray, size: np.ndarray, out_size: Sequence[int]
) -> Tensor:
    """
    A box of ``values``, which show the whole of ``image``, at another size, with the type and metadata of the image.

    Integer images give the type of the values. The affine matrix of a MetaTensor follows.
    """
    rows, columns = (slice(first, end) for first, end in zip(start, start + size, strict=True))
    # a copy: a box that needs no resizing is a view of the values, perhaps of the image itself
    result = resize(values[:, rows, columns], out_size)
    result = result.clone(memory_format=torch.contiguous_format)
    if image.is_floating_point():
        result = result.to(image.dtype)
    if not isinstance(image, MetaTensor):
        return result
    crop: MetaTensor = convert_to_dst_type(result, image, dtype=result.dtype)[0]
    to_image = np.asarray(image.shape[1:]) / np.asarray(values.shape[1:])
    scale = size / np.asarray(out_size)
    first_pixel = (start + 0.5 * scale) * to_image - 0.5
    crop.affine = _moved_affine(image.affine, scale * to_image, first_pixel)
    return crop


def _moved_affine(affine: Tensor, scale: np.ndarray, first_pixel: np.ndarray) -> Tensor:
    """Affine matrix of a crop whose pixel p lies at ``first_pixel + scale * p`` of the image with the given matrix."""
    moved = affine.clone()
    moved[:, :2] = affine[:, :2] * torch.as_tensor(scale).to(affine)
    moved[:, -1] = affine[:, -1] + affine[:, :2] @ torch.as_tensor(first_pixel).to(affine)
    return moved
