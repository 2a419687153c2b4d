# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Rendering of synthetic lesions: one formula per pixel, two ways of choosing the pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import expm1
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from monai_afire.transforms.lesion_synthesis.parameters import (
    NUM_HARMONICS,
    LesionParameters,
    half_extents,
)

# torch hands larger tensors to several threads, which costs far more than it saves here
GROUP_PIXELS = 32768


def lesion_profile(squared_radius: Tensor, gamma: float) -> Tensor:
    """
    Profile of a lesion (AFiRe, Eq. 2), whose ellipse is the unit disk: 1 at the center, 0 on the ellipse and beyond.

    It is ``(exp((1 - rho ** 2) / gamma) - 1) / (exp(1 / gamma) - 1)``, and exactly 0 at 1 in every floating-point type.
    """
    inside = (1 - squared_radius).clamp_(min=0)
    return inside.div_(gamma).expm1_().div_(expm1(1 / gamma))


def render_boxes(images: Tensor, parameters: LesionParameters) -> Tensor:
    """Lesion maps that touch only the pixels near each lesion: the fastest way on a CPU."""
    sides = images.shape[2:]
    maps = images.new_zeros((*parameters.active.shape[:2], *sides))
    sources, targets = images.split(1), [own.unbind() for own in maps.unbind()]
    half_extent = half_extents(parameters.size, parameters.rotation)[parameters.active]
    by_size = half_extent.amax(-1).argsort()
    owners = parameters.active.nonzero()[by_size].tolist()
    lesions = _Lesions.of(parameters, sides).select(parameters.active).select(by_size)
    box_sides = (2 * half_extent[by_size]).ceil().int() + 1
    for group in _groups(box_sides.amax(-1).tolist()):
        members = lesions.select(group)
        longest = box_sides[group].amax(0).tolist()
        height, width = (min(side, length) for side, length in zip(sides, longest, strict=True))
        start = _box_starts(members, (height, width), sides)
        rows, columns = _pixels(start, (height, width))
        weight, grid = _weights_and_grid(rows, columns, members, parameters)
        boxes = zip(owners[group], start.tolist(), weight.split(1), grid.split(1), strict=True)
        for (image, variant, _), (top, left), own_weight, own_grid in boxes:
            texture = _sample(sources[image], own_grid)
            region = targets[image][variant][top : top + height, left : left + width]
            region.addcmul_(texture.view(height, width), own_weight.view(height, width))
    return maps


def render_dense(images: Tensor, parameters: LesionParameters) -> Tensor:
    """Lesion maps of the whole batch at once and without host synchronization: the way for a GPU."""
    sides = images.shape[2:]
    maps = images.new_zeros((*parameters.active.shape[:2], sides.numel()))
    all_lesions = _Lesions.of(parameters, sides)
    for r in range(parameters.active.shape[2]):
        lesions = all_lesions.select((slice(None), slice(None), r))
        rows, columns = _pixels(_box_starts(lesions, parameters.window, sides), parameters.window)
        weight, grid = _weights_and_grid(rows, columns, lesions, parameters)
        texture = _sample(images, grid.flatten(1, 2)).view_as(weight)
        values = texture * weight * parameters.active[:, :, r, None]
        index = _outer_sum(rows * sides[1], columns).flatten(-2)
        maps.scatter_(2, index, maps.gather(2, index) + values)
    return maps.unflatten(2, sides)


class _Lesions(NamedTuple):
    """Lesions with any leading axes (...), in the form in which their pixels are computed."""

    center: Tensor  # (..., 2), in pixels
    half_extent: Tensor  # (..., 2), half sides of the lesion's box
    to_local: Tensor  # (..., 2, 2), from a pixel's offset to coordinates in which the ellipse is the unit disk
    to_texture: Tensor  # (..., 2, 2), from a pixel's offset to the texture's, in grid_sample's units and axis order
    texture_center: Tensor  # (..., 2), likewise
    to_harmonic: Tensor  # (..., 2, 2), from a pixel's offset to its component along the axis of each boundary harmonic
    harmonic_weight: Tensor  # (..., 2)
    amplitude: Tensor  # (...)

    @classmethod
    def of(cls, parameters: LesionParameters, sides: Sequence[int]) -> _Lesions:
        """Lesions (B, N, R)."""
        to_local = parameters.rotation.transpose(-1, -2) * (2 / parameters.size).unsqueeze(-1)
        # grid_sample counts from -1 to 1 over the image and wants the columns first
        centers, sizes = parameters.texture_center.unbind(-1), parameters.texture_size.unbind(-1)
        axes = list(zip(centers, sizes, sides, strict=True))[::-1]
        texture_center = torch.stack([center * (2 / side) - 1 for center, _, side in axes], dim=-1)
        texture_scale = torch.stack([size / side for _, size, side in axes], dim=-1)
        return cls(
            center=parameters.center,
            half_extent=half_extents(parameters.size, parameters.rotation),
            to_local=to_local,
            to_texture=texture_scale.unsqueeze(-1) * to_local.flip(-2),
            texture_center=texture_center,
            to_harmonic=(parameters.harmonic_axis.unsqueeze(-1) * to_local.unsqueeze(-3)).sum(-2),
            harmonic_weight=parameters.harmonic_weight,
            amplitude=parameters.amplitude,
        )

    def select(self, index: Any) -> _Lesions:
        """The lesions at an index into the leading axes."""
        return _Lesions(*(values[index] for values in self))


def _groups(longest_sides: list[int]) -> Iterator[slice]:
    """Consecutive groups of lesions, sorted by their longest side, of at most GROUP_PIXELS pixels or of one lesion."""
    first = 0
    for last, side in enumerate(longest_sides):
        if last > first and (last + 1 - first) * side**2 > GROUP_PIXELS:
            yield slice(first, last)
            first = last
    if longest_sides:
        yield slice(first, len(longest_sides))


def _box_starts(lesions: _Lesions, box: Sequence[int], sides: Sequence[int]) -> Tensor:
    """First pixels (..., 2) of boxes of the given sides that lie inside the image and hold the lesions."""
    start = (lesions.center - lesions.half_extent).floor().long()
    axes = zip(start.unbind(-1), box, sides, strict=True)
    return torch.stack([first.clamp(0, side - length) for first, length, side in axes], dim=-1)


def _pixels(start: Tensor, box: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Rows (..., height) and columns (..., width) of a box."""
    height, width = (torch.arange(length, device=start.device) for length in box)
    return start[..., :1] + height, start[..., 1:] + width


def _weights_and_grid(
    rows: Tensor, columns: Tensor, lesions: _Lesions, parameters: LesionParameters
) -> tuple[Tensor, Tensor]:
    """amplitude * profile (..., P), and where to take the texture from (..., P, 2), at all P pixels of a box."""
    down = rows.to(lesions.center.dtype) + 0.5 - lesions.center[..., :1]
    right = columns.to(lesions.center.dtype) + 0.5 - lesions.center[..., 1:]
    first, second = (_linear_map(row, down, right) for row in lesions.to_local.unbind(-2))
    squared_radius = first.square() + second.square()
    if parameters.irregularity:
        factor = _boundary_factor(squared_radius, down, right, lesions, parameters.irregularity)
        squared_radius *= factor.square_()
    weight = lesion_profile(squared_radius, parameters.gamma)
    weight *= lesions.amplitude[..., None, None]
    # filled axis by axis: torch.stack takes three times as long
    grid = weight.new_empty((*weight.shape, 2))
    axes = zip(lesions.to_texture.unbind(-2), lesions.texture_center.unbind(-1), strict=True)
    for axis, (row, constant) in enumerate(axes):
        grid[..., axis] = _linear_map(row, down, right, constant)
    return weight.flatten(-2), grid.flatten(-3, -2)


def _boundary_factor(
    squared_radius: Tensor, down: Tensor, right: Tensor, lesions: _Lesions, irregularity: float
) -> Tensor:
    """Factor (..., *box) in [1, 1 + irregularity] by which the radius is enlarged; it depends on the direction only."""
    per_radius = (squared_radius + 1e-12).rsqrt_()
    third, fourth = (
        _linear_map(row, down, right).mul_(per_radius) for row in lesions.to_harmonic.unbind(-2)
    )
    depth = (lesions.harmonic_weight * (irregularity / 2 / NUM_HARMONICS))[..., None, None]
    base = 1 + depth.sum(-3)
    fourth_squared = fourth.square_()
    # cos 3a and cos 4a of the angle a to each axis, whose cosine is known, in place
    factor = (third.square() * 4).sub_(3).mul_(third).mul_(depth[..., 0, :, :])
    four_lobes = (fourth_squared - 1).mul_(fourth_squared).mul_(8).add_(1)
    factor += four_lobes.mul_(depth[..., 1, :, :])
    return factor.add_(base)


def _linear_map(row: Tensor, down: Tensor, right: Tensor, constant: Tensor | None = None) -> Tensor:
    """Matrix row (..., 2) times the offsets of all pixels of a box, plus a constant (...): (..., *box)."""
    of_rows = row[..., :1] * down
    if constant is not None:
        of_rows = of_rows + constant.unsqueeze(-1)
    return _outer_sum(of_rows, row[..., 1:] * right)


def _outer_sum(rows: Tensor, columns: Tensor) -> Tensor:
    """(..., height) and (..., width) to (..., height, width)."""
    return rows.unsqueeze(-1) + columns.unsqueeze(-2)


def _sample(images: Tensor, grid: Tensor) -> Tensor:
    """Linear interpolation of images (B, 1, H, W) at points (B, P, 2) in the units of grid_sample: (B, P)."""
    return F.grid_sample(
        images, grid.unsqueeze(1), mode="bilinear", padding_mode="border", align_corners=False
    ).flatten(1)
