# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Corresponding patches and overlap masks of two grid crops: for batches of offsets, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from monai_afire.transforms.argument_checks import check_positive


def check_patches(
    offset_1: Tensor, offset_2: Tensor, crops: Sequence[int], patch_cells: Sequence[int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Check the arguments that the functions below share, and return cells and patches per axis of both crops."""
    crops, patch_cells = check_positive("crops", crops), check_positive("patch_cells", patch_cells)
    if offset_1.ndim != 2 or offset_1.shape != offset_2.shape or offset_1.shape[1] < 1:
        shapes = f"{tuple(offset_1.shape)} and {tuple(offset_2.shape)}"
        raise ValueError(f"offset_1 and offset_2 must both be (B, spatial dims), got {shapes}.")
    if offset_1.is_floating_point() or offset_2.is_floating_point():
        raise ValueError(
            f"Offsets must be whole numbers of cells, got {offset_1.dtype} and {offset_2.dtype}."
        )
    are_pairs = len(crops) == len(patch_cells) == 2
    if not are_pairs or crops[0] % patch_cells[0] or crops[1] % patch_cells[1]:
        raise ValueError(
            f"Two crops of {crops} cells cannot be divided into patches of {patch_cells} cells."
        )
    return (crops[0], crops[1]), (crops[0] // patch_cells[0], crops[1] // patch_cells[1])


def axis_to_patches(values: Tensor, axis: int, spatial_dims: int) -> Tensor:
    """View (B, k) along a spatial axis of (B, k, ..., k), for broadcasting."""
    return values.reshape(
        len(values), *(values.shape[1] if d == axis else 1 for d in range(spatial_dims))
    )


def inside_other(
    offset: Tensor, other: Tensor, patches: int, patch_cells: int, other_cells: int
) -> Tensor:
    """Which patches (B, patches**dims) of the crop at ``offset`` lie wholly inside a crop at ``other``."""
    places = torch.arange(patches, device=offset.device) * patch_cells
    starts = (offset - other).unsqueeze(2) + places
    inside = (starts >= 0) & (starts + patch_cells <= other_cells)
    mask = inside.new_ones((len(offset), *[patches] * offset.shape[1]))
    for axis in range(offset.shape[1]):
        mask = mask & axis_to_patches(inside[:, axis], axis, offset.shape[1])
    return mask.flatten(1)


def overlap_masks(
    offset_1: Tensor, offset_2: Tensor, crops: Sequence[int], patch_cells: Sequence[int] = (1, 1)
) -> tuple[Tensor, Tensor]:
    """
    Masks of the patches of each crop that lie wholly inside the other crop; for a batch, on any device.

    Args:
        offset_1: offsets of the first crops in cells, (B, spatial dims), integer.
        offset_2: offsets of the second crops in cells, (B, spatial dims), integer.
        crops: cells per axis of the first and the second crop, (k1, k2).
        patch_cells: cells per axis that one patch of the first and of the second crop shows, (p1, p2): (1, 1) for
            PEAC; (1, 2) for ACE, whose second crop is shown at half the scale.

    Returns:
        Boolean masks (B, L1) and (B, L2), where L = (k / p) ** dims, patches in row-major order.

    Raises:
        ValueError: on arguments of wrong shape or type.

    Example:
        >>> mask_1, mask_2 = overlap_masks(torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), crops=(2, 2))
        >>> mask_1.tolist(), mask_2.tolist()
        ([[False, False, True, True]], [[True, True, False, False]])
    """
    (k1, k2), (n1, n2) = check_patches(offset_1, offset_2, crops, patch_cells)
    p1, p2 = patch_cells
    first = inside_other(offset_1, offset_2, n1, p1, k2)
    second = inside_other(offset_2, offset_1, n2, p2, k1)
    return first, second


def matching_patches(
    offset_1: Tensor, offset_2: Tensor, crops: Sequence[int], patch_cells: Sequence[int] = (1, 1)
) -> Tensor:
    """
    Index of the patch of the second crop that shows the same cells as each patch of the first; for a batch.

    With patches of different scale: the patch of the second crop that contains the patch of the first.

    Args:
        offset_1: offsets of the first crops in cells, (B, spatial dims), integer.
        offset_2: offsets of the second crops in cells, (B, spatial dims), integer.
        crops: cells per axis of the first and the second crop, (k1, k2).
        patch_cells: cells per axis that one patch of the first and of the second crop shows, (p1, p2).

    Returns:
        Row-major patch indices (B, L1), int64; -1 where no patch of the second crop does.

    Raises:
        ValueError: on arguments of wrong shape or type.

    Example:
        >>> matching_patches(torch.tensor([[0, 0]]), torch.tensor([[1, 0]]), crops=(2, 2)).tolist()
        [[-1, -1, 0, 1]]
    """
    _, (n1, n2) = check_patches(offset_1, offset_2, crops, patch_cells)
    p1, p2 = patch_cells
    firsts = torch.arange(n1, device=offset_1.device) * p1
    starts = (offset_1 - offset_2).long().unsqueeze(2) + firsts
    places = starts.div(p2, rounding_mode="floor")
    found = (places >= 0) & (places < n2) & (starts - places * p2 + p1 <= p2)
    dims = offset_1.shape[1]
    index = places.new_zeros((len(offset_1), *[n1] * dims))
    all_found = torch.ones_like(index, dtype=torch.bool)
    for axis in range(dims):
        index = index * n2 + axis_to_patches(places[:, axis], axis, dims)
        all_found = all_found & axis_to_patches(found[:, axis], axis, dims)
    return torch.where(all_found, index, -1).flatten(1)
