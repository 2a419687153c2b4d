# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Boxes in images: random boxes, their parts, crops and masks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F

from monai_afire.transforms.grid_crop import resize


def random_boxes(
    number: int,
    img_size: Sequence[int],
    side: Sequence[float] = (0.3, 0.6),
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """
    Boxes of random size at random places, wholly inside the image.

    Args:
        number: N, how many.
        img_size: spatial size of the image in pixels.
        side: smallest and largest side as a share of the image's; one share for all axes of a box.
        generator: source of random numbers on the CPU.

    Returns:
        ``(N, 2 n)`` int64 for n axes: the lower ends, then the sizes, which are even so that a box can be halved.

    Raises:
        ValueError: when the sides are no shares, or the image has fewer than two pixels along an axis.

    Example:
        >>> random_boxes(2, (32, 64), (0.5, 0.5))[:, 2:].tolist()
        [[16, 32], [16, 32]]
    """
    if not 0 < side[0] <= side[1] <= 1 or min(img_size) < 2:
        raise ValueError(f"side must be two shares 0 < smallest <= largest <= 1, got {tuple(side)}")
    size = torch.tensor(img_size)
    share = side[0] + (side[1] - side[0]) * torch.rand(number, 1, generator=generator)
    sizes = (2 * (share * size / 2).round().long()).clamp_min(2).minimum(size // 2 * 2)
    room = size - sizes + 1
    starts = (
        (torch.rand(number, len(img_size), generator=generator) * room).long().minimum(room - 1)
    )
    return torch.cat([starts, sizes], dim=1)


def split_boxes(boxes: torch.Tensor, parts: int, axes: torch.Tensor | None = None) -> torch.Tensor:
    """
    Cut boxes into equal parts that do not overlap.

    Args:
        boxes: ``(N, 2 n)`` of :func:`random_boxes`.
        parts: 2, halves along one axis, or :math:`2^n`, halves along all.
        axes: ``(N,)`` int64, the axis along which each box is cut in two; None for the first.

    Returns:
        ``(N, parts, 2 n)``.

    Raises:
        ValueError: for another number of parts.

    Example:
        >>> split_boxes(torch.tensor([[1, 2, 8, 4]]), 4)[0].tolist()
        [[1, 2, 4, 2], [1, 4, 4, 2], [5, 2, 4, 2], [5, 4, 4, 2]]
    """
    dims = boxes.shape[1] // 2
    if parts not in (2, 2**dims):
        raise ValueError(
            f"a patch of {dims} axes is cut into 2 or {2**dims} parts, got parts={parts}"
        )
    if parts == 2**dims:
        cut = torch.ones(len(boxes), dims, dtype=torch.long)
    else:
        cut = F.one_hot(torch.zeros(len(boxes), dtype=torch.long) if axes is None else axes, dims)
    sizes = boxes[:, dims:] // (1 + cut)
    corners = torch.tensor(list(product(range(2), repeat=dims)))
    steps = corners.expand(len(boxes), -1, -1)[(corners <= cut.unsqueeze(1)).all(-1)].reshape(
        -1, parts, dims
    )
    starts = boxes[:, None, :dims] + steps * sizes.unsqueeze(1)
    return torch.cat([starts, sizes.unsqueeze(1).expand_as(starts)], dim=-1)


def crop_and_resize(images: torch.Tensor, boxes: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """
    Cut one box out of each image and resize it linearly, with antialiasing: nothing from outside of a box is seen.

    Args:
        images: ``(N, C, *S)``.
        boxes: ``(N, 2 n)``, lower ends and sizes in pixels.
        size: of the result.

    Returns:
        ``(N, C, *size)`` on the images' device.

    Example:
        >>> image = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> crop_and_resize(image, torch.tensor([[1, 2, 2, 2]]), (2, 2))
        tensor([[[[ 6.,  7.],
                  [10., 11.]]]])
    """
    crops = []
    for image, box in zip(images, boxes.tolist(), strict=True):
        lower, extent = box[: len(size)], box[len(size) :]
        axes = [slice(start, start + length) for start, length in zip(lower, extent, strict=True)]
        inside = (slice(None), *axes)
        crops.append(resize(image[inside], size))
    return torch.stack(crops) if crops else images.new_empty((0, images.shape[1], *size))


def box_masks(boxes: torch.Tensor, img_size: Sequence[int]) -> torch.Tensor:
    """
    Pixels of boxes; those that a box touches belong to it.

    Args:
        boxes: ``(N, 2 n)``, lower ends and sizes in pixels.
        img_size: spatial size of the image.

    Returns:
        ``(N, *S)`` bool. A box without extent has no pixel.

    Example:
        >>> box_masks(torch.tensor([[0.0, 1.0, 1.0, 2.0]]), (2, 4)).int().tolist()
        [[[0, 1, 1, 0], [0, 0, 0, 0]]]
    """
    lower, extent = boxes.chunk(2, dim=1)
    first, end = lower.floor(), torch.where(extent > 0, lower + extent, lower).ceil()
    mask = (extent > 0).all(1).reshape(-1, *[1] * len(img_size))
    for axis, length in enumerate(img_size):
        pixel = torch.arange(length, device=boxes.device)
        inside = (pixel >= first[:, axis, None]) & (pixel < end[:, axis, None])
        shape = [len(boxes), *[1] * len(img_size)]
        shape[1 + axis] = length
        mask = mask & inside.reshape(shape)
    return mask
