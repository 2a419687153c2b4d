# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Rendering of synthetic lesions: one formula per pixel, two ways of choosing the pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import expm1, prod
from operator import add
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
    Profile of a lesion (AFiRe, Eq. 2), whose ellipse is the unit ball: 1 at the center, 0 on the ellipse and beyond.

    It is ``(exp((1 - rho ** 2) / gamma) - 1) / (exp(1 / gamma) - 1)``, and exactly 0 at 1 in every floating-point type.
    """
    inside = (1 - squared_radius).clamp_(min=0)
    return inside.div_(gamma).expm1_().div_(expm1(1 / gamma))


def render_boxes(images: Tensor, parameters: LesionParameters) -> Tensor:
    """Lesion maps that touch only the pixels near each lesion: the fastest way on a CPU."""
    spatial_shape = images.shape[2:]
    maps = images.new_zeros((*parameters.active.shape[:2], *spatial_shape))
    sources, targets = images.split(1), [own.unbind() for own in maps.unbind()]
    half_extent = half_extents(parameters.size, parameters.rotation)[parameters.active]
    by_size = half_extent.amax(-1).argsort()
    owners = parameters.active.nonzero()[by_size].tolist()
    lesions = _Lesions.of(parameters, spatial_shape).select(parameters.active).select(by_size)
    box_sides = (2 * half_extent[by_size]).ceil().int() + 1
    for group in _groups(box_sides.amax(-1).tolist(), len(spatial_shape)):
        members = lesions.select(group)
        longest = box_sides[group].amax(0).tolist()
        box = tuple(min(side, length) for side, length in zip(spatial_shape, longest, strict=True))
        start = _box_starts(members, box, spatial_shape)
        weight, grid = _weights_and_grid(_pixels(start, box), members, parameters)
        rows = zip(owners[group], start.tolist(), weight.split(1), grid.split(1), strict=True)
        for (image, variant, _), origin, own_weight, own_grid in rows:
            texture = _sample(sources[image], own_grid)
            region = tuple([slice(i, i + length) for i, length in zip(origin, box, strict=True)])
            targets[image][variant][region].addcmul_(texture.view(box), own_weight.view(box))
    return maps


def render_dense(images: Tensor, parameters: LesionParameters) -> Tensor:
    """Lesion maps of the whole batch at once and without host synchronization: the way for a GPU."""
    spatial_shape = images.shape[2:]
    maps = images.new_zeros((*parameters.active.shape[:2], spatial_shape.numel()))
    all_lesions = _Lesions.of(parameters, spatial_shape)
    for r in range(parameters.active.shape[2]):
        lesions = all_lesions.select((slice(None), slice(None), r))
        pixels = _pixels(_box_starts(lesions, parameters.window, spatial_shape), parameters.window)
        weight, grid = _weights_and_grid(pixels, lesions, parameters)
        texture = _sample(images, grid.flatten(1, 2)).view_as(weight)
        values = texture * weight * parameters.active[:, :, r, None]
        index = _flat_indices(pixels, spatial_shape)
        maps.scatter_(2, index, maps.gather(2, index) + values)
    return maps.unflatten(2, spatial_shape)


class _Lesions(NamedTuple):
    """Lesions with any leading axes (...), in the form in which their pixels are computed."""

    center: Tensor  # (..., D), in pixels
    half_extent: Tensor  # (..., D), half sides of the lesion's box
    to_local: Tensor  # (..., D, D), from a pixel's offset to coordinates in which the ellipse is the unit ball
    to_texture: Tensor  # (..., D, D), from a pixel's offset to the texture's, in grid_sample's units and axis order
    texture_center: Tensor  # (..., D), likewise
    to_harmonic: Tensor  # (..., 2, D), from a pixel's offset to its component along the axis of each boundary harmonic
    harmonic_weight: Tensor  # (..., 2)
    amplitude: Tensor  # (...)

    @classmethod
    def of(cls, parameters: LesionParameters, spatial_shape: Sequence[int]) -> _Lesions:
        """Lesions (B, N, R)."""
        to_local = parameters.rotation.transpose(-1, -2) * (2 / parameters.size).unsqueeze(-1)
        # grid_sample counts from -1 to 1 over the image and wants the last axis first.
        centers, sizes = parameters.texture_center.unbind(-1), parameters.texture_size.unbind(-1)
        axes = list(zip(centers, sizes, spatial_shape, strict=True))[::-1]
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


def _groups(longest_sides: list[int], spatial_dims: int) -> Iterator[slice]:
    """Consecutive groups of lesions, sorted by their longest side, of at most GROUP_PIXELS pixels or of one lesion."""
    first = 0
    for last, side in enumerate(longest_sides):
        if last > first and (last + 1 - first) * side**spatial_dims > GROUP_PIXELS:
            yield slice(first, last)
            first = last
    if longest_sides:
        yield slice(first, len(longest_sides))


def _box_starts(lesions: _Lesions, box: Sequence[int], spatial_shape: Sequence[int]) -> Tensor:
    """First pixels (..., D) of boxes of the given sides that lie inside the image and hold the lesions."""
    start = (lesions.center - lesions.half_extent).floor().long()
    axes = zip(start.unbind(-1), box, spatial_shape, strict=True)
    return torch.stack([first.clamp(0, side - length) for first, length, side in axes], dim=-1)


def _pixels(start: Tensor, box: Sequence[int]) -> list[Tensor]:
    """Indices (..., length) of the pixels of a box along each of D axes."""
    return [
        first.unsqueeze(-1) + torch.arange(length, device=start.device)
        for first, length in zip(start.unbind(-1), box, strict=True)
    ]


def _flat_indices(pixels: list[Tensor], spatial_shape: Sequence[int]) -> Tensor:
    """Positions (..., P) of a box's P pixels in the flattened image."""
    strides = [prod(spatial_shape[axis + 1 :]) for axis in range(len(pixels))]
    terms = [index * stride for index, stride in zip(pixels, strides, strict=True)]
    return _outer_sum(terms).flatten(-len(pixels))


def _weights_and_grid(
    pixels: list[Tensor], lesions: _Lesions, parameters: LesionParameters
) -> tuple[Tensor, Tensor]:
    """amplitude * profile, and where to take the texture from, at all P pixels of a box."""
    centers = lesions.center.unsqueeze(-1).unbind(-2)
    offsets = [p.to(c.dtype) + 0.5 - c for p, c in zip(pixels, centers, strict=True)]
    local = [_linear_map(row, offsets) for row in lesions.to_local.unbind(-2)]
    squared_radius = reduce(add, [v.square() for v in local])
    if parameters.irregularity:
        factor = _boundary_factor(squared_radius, offsets, lesions, parameters.irregularity)
        squared_radius *= factor.square_()
    weight = lesion_profile(squared_radius, parameters.gamma)
    weight *= _per_lesion(lesions.amplitude, offsets)
    # filled axis by axis: torch.stack takes three times as long
    grid = weight.new_empty((*weight.shape, len(pixels)))
    rows = zip(lesions.to_texture.unbind(-2), lesions.texture_center.unbind(-1), strict=True)
    for axis, (row, constant) in enumerate(rows):
        grid[..., axis] = _linear_map(row, offsets, constant)
    return weight.flatten(-len(pixels)), grid.flatten(-len(pixels) - 1, -2)


def _boundary_factor(
    squared_radius: Tensor, offsets: list[Tensor], lesions: _Lesions, irregularity: float
) -> Tensor:
    """Factor (..., *box) in [1, 1 + irregularity] by which the radius is enlarged; it depends on the direction only."""
    per_radius = (squared_radius + 1e-12).rsqrt_()
    third, fourth = (
        _linear_map(row, offsets).mul_(per_radius) for row in lesions.to_harmonic.unbind(-2)
    )
    depth = lesions.harmonic_weight * (irregularity / 2 / NUM_HARMONICS)
    base = 1 + depth.sum(-1)
    fourth_squared = fourth.square_()
    # cos 3a and cos 4a of the angle a to each axis, whose cosine is known, in place
    factor = (third.square() * 4).sub_(3).mul_(third).mul_(_per_lesion(depth[..., 0], offsets))
    four_lobes = (fourth_squared - 1).mul_(fourth_squared).mul_(8).add_(1)
    factor += four_lobes.mul_(_per_lesion(depth[..., 1], offsets))
    return factor.add_(_per_lesion(base, offsets))


def _linear_map(row: Tensor, offsets: list[Tensor], constant: Tensor | None = None) -> Tensor:
    """Matrix row (..., D) times the offsets of all pixels of a box, plus a constant (...): (..., *box)."""
    terms = [r.unsqueeze(-1) * offset for r, offset in zip(row.unbind(-1), offsets, strict=True)]
    if constant is not None:
        terms[0] = terms[0] + constant.unsqueeze(-1)
    return _outer_sum(terms)


def _outer_sum(terms: list[Tensor]) -> Tensor:
    """Sum (..., *box) of one term (..., length) along each of the D axes of a box."""
    last = len(terms) - 1
    return reduce(add, [_unsqueeze(term, axis, last - axis) for axis, term in enumerate(terms)])


def _per_lesion(values: Tensor, offsets: list[Tensor]) -> Tensor:
    """One number per lesion (...), shaped to broadcast over its box."""
    return _unsqueeze(values.unsqueeze(-1), 0, len(offsets) - 1)


def _unsqueeze(values: Tensor, before: int, after: int) -> Tensor:
    """Insert axes of length 1 before and after the last axis."""
    return values.reshape(*values.shape[:-1], *[1] * before, values.shape[-1], *[1] * after)


def _sample(images: Tensor, grid: Tensor) -> Tensor:
    """Linear interpolation of images (B, 1, *S) at points (B, P, D) in the units of grid_sample: (B, P)."""
    num_points, spatial_dims = grid.shape[1:]
    grid = grid.reshape(-1, 1, num_points, *[1] * (spatial_dims - 2), spatial_dims)
    return F.grid_sample(
        images, grid, mode="bilinear", padding_mode="border", align_corners=False
    ).flatten(1)
