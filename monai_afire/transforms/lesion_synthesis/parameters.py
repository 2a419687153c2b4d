# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Parameters of synthetic lesions, drawn once and rendered by either back end, and where their texture comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from monai_afire.transforms.base import check_range
from monai_afire.utils.device import widest_float

REFERENCE_SIDE = 224  # the image side for which the paper gives lesion sizes in pixels
# pixels; a smaller ellipse may lie between the pixel centers and leave no trace
SMALLEST_LESION = 3.0
NUM_HARMONICS = 2  # harmonics along the boundary of an irregular lesion: 3 and 4 lobes

# how many random numbers each property of a lesion takes, in their order
_UNIFORMS = {
    "number": 1,  # of lesions in the map: that of its first lesion counts
    "amplitude": 1,
    "size": 2,
    "center": 2,
    "texture_size": 2,
    "texture_center": 1,
    "rotation": 3,  # the first is the angle; without the others a seed would give other lesions
    "harmonic_axis": 2 * NUM_HARMONICS,
    "harmonic_weight": NUM_HARMONICS,
}
UNIFORMS_PER_LESION = sum(_UNIFORMS.values())
"""U, how many uniform random numbers determine one lesion."""


@dataclass(frozen=True)
class LesionSettings:
    """Settings of the lesions that are drawn, see :class:`SynthLesionMask`."""

    num_lesions: Sequence[int] = (1, 4)
    lesion_size: Sequence[float] = (16, 64)
    gamma: float = 0.5
    amplitude: Sequence[float] = (0.15, 0.5)
    rotate: bool = True
    irregularity: float = 0.3

    def __post_init__(self) -> None:
        for name in ("num_lesions", "lesion_size", "amplitude"):
            check_range(name, getattr(self, name))
        low, high = self.lesion_size
        if (low < 1) != (high < 1) or high > REFERENCE_SIDE:
            sizes = f"two fractions below 1, or two lengths in pixels of up to {REFERENCE_SIDE}"
            raise ValueError(f"lesion_size must be {sizes}, got {self.lesion_size}.")
        if self.gamma < 0.02 or not 0 <= self.irregularity <= 0.5:
            found = f"{self.gamma} and {self.irregularity}"
            raise ValueError(f"gamma must be >= 0.02, irregularity in [0, 0.5], got {found}.")

    @property
    def size_fractions(self) -> tuple[float, float]:
        """Range of the axis lengths as fractions of the image side."""
        low, high = self.lesion_size
        return (low, high) if high < 1 else (low / REFERENCE_SIDE, high / REFERENCE_SIDE)


@dataclass(frozen=True)
class LesionParameters:
    """
    All that determines the lesions of a batch: B images, N maps per image, at most R lesions per map.

    Lengths and positions are (row, column) in pixels; pixel ``i`` of an axis covers [i, i + 1]. In the lesion's own
    coordinates ``v = 2 * rotation^T (p - center) / size`` its ellipse is the unit disk, and the point ``v`` takes its
    texture at ``texture_center + v * texture_size / 2``: the cut texture is resized to the lesion and turns with it.
    """

    active: Tensor  # (B, N, R), bool: False for lesions that a map of fewer than R lacks
    center: Tensor  # (B, N, R, 2), of the ellipse
    size: Tensor  # (B, N, R, 2), full axis lengths of the ellipse (the paper's W and H)
    rotation: Tensor  # (B, N, R, 2, 2), rotation matrices
    amplitude: Tensor  # (B, N, R), strength
    texture_center: Tensor  # (B, N, R, 2), of the texture patch in the same image
    texture_size: Tensor  # (B, N, R, 2), full side lengths of the texture patch
    # unit vectors in the lesion's own coordinates: first peaks of the boundary harmonics 3 and 4
    harmonic_axis: Tensor  # (B, N, R, 2, 2)
    harmonic_weight: Tensor  # (B, N, R, 2), strengths of the harmonics in [0, 1]
    gamma: float  # width of the profile
    irregularity: float  # depth of the harmonics
    window: tuple[int, int]  # a box that holds any lesion, known without reading a tensor


def draw_lesion_parameters(
    images: Tensor, settings: LesionSettings, uniforms: Tensor
) -> LesionParameters:
    """
    Turn uniform random numbers into lesions for the given images.

    The boxes around each lesion and around its texture lie inside the image, where it is large enough. The texture is
    centered on a random bright (Otsu-foreground) pixel, or moved inside, and its sides are drawn from the same range as
    those of the lesion, independently. Axes are never shorter than 3 pixels, so that every lesion covers a pixel.

    Args:
        images: (B, C, H, W), floating point in [0, 1]; several channels share one texture, that of their mean.
        settings: what to draw.
        uniforms: (B, N, R, U) in [0, 1], R = ``settings.num_lesions[1]``, U = ``UNIFORMS_PER_LESION``.
    """
    sides = tuple(images.shape[2:])
    uniforms = uniforms.to(torch.promote_types(images.dtype, torch.float32))
    drawn = dict(zip(_UNIFORMS, uniforms.split([*_UNIFORMS.values()], dim=-1), strict=True))
    size = _axis_lengths(drawn["size"], settings, sides)
    rotation = _rotation_matrices(drawn["rotation"][..., 0], settings.rotate)
    texture_size = _axis_lengths(drawn["texture_size"], settings, sides)
    gray = images.to(uniforms.dtype).mean(1)
    bright_points = random_foreground_points(gray, drawn["texture_center"].flatten(1))
    first, last = _places_inside(half_extents(size, rotation), sides)
    first_texture, last_texture = _places_inside(texture_size / 2, sides)
    low, high = settings.amplitude
    axes = drawn["harmonic_axis"].unflatten(-1, (NUM_HARMONICS, 2))
    return LesionParameters(
        active=_active(drawn["number"], settings),
        center=torch.lerp(first, last, drawn["center"]),
        size=size,
        rotation=rotation,
        amplitude=low + (high - low) * drawn["amplitude"].squeeze(-1),
        texture_center=bright_points.reshape(size.shape).clamp(first_texture, last_texture),
        texture_size=texture_size,
        harmonic_axis=F.normalize(2 * axes - 1, dim=-1),
        harmonic_weight=drawn["harmonic_weight"],
        gamma=float(settings.gamma),
        irregularity=float(settings.irregularity),
        window=_window(settings, sides),
    )


def half_extents(size: Tensor, rotation: Tensor) -> Tensor:
    """Half side lengths of the boxes around turned ellipses, along the axes of the image."""
    return (rotation.square() * (size / 2).square().unsqueeze(-2)).sum(-1).sqrt()


def _active(uniforms: Tensor, settings: LesionSettings) -> Tensor:
    """The first lesions (B, N, R) of each map, as many as the number (B, N, R, 1) of its first lesion says."""
    fewest, most = (int(n) for n in settings.num_lesions)
    more = (uniforms[..., :1, 0] * (most - fewest + 1)).floor().clamp(max=most - fewest)
    return torch.arange(most, device=uniforms.device) < fewest + more


def _axis_lengths(uniforms: Tensor, settings: LesionSettings, sides: Sequence[int]) -> Tensor:
    """Uniform lengths (..., 2) in pixels from random numbers (..., 2)."""
    low, high = settings.size_fractions
    rows, columns = (low + (high - low) * uniforms).unbind(-1)
    lengths = torch.stack([rows * sides[0], columns * sides[1]], dim=-1)
    return lengths.clamp(min=SMALLEST_LESION)


def _places_inside(half_extent: Tensor, sides: Sequence[int]) -> tuple[Tensor, Tensor]:
    """First and last center (..., 2) of boxes of the given half sides within the image; its own for larger boxes."""
    halves = zip(half_extent.unbind(-1), sides, strict=True)
    first = [half.clamp(max=side / 2) for half, side in halves]
    last = [side - place for place, side in zip(first, sides, strict=True)]
    return torch.stack(first, dim=-1), torch.stack(last, dim=-1)


def _rotation_matrices(uniforms: Tensor, rotate: bool) -> Tensor:
    """Rotations (..., 2, 2), uniformly distributed, from random numbers (...); the identity without ``rotate``."""
    if not rotate:
        identity = torch.eye(2, dtype=uniforms.dtype, device=uniforms.device)
        return identity.expand(*uniforms.shape, 2, 2)
    angle = 2 * math.pi * uniforms
    entries = [angle.cos(), -angle.sin(), angle.sin(), angle.cos()]
    return torch.stack(entries, dim=-1).unflatten(-1, (2, 2))


def _window(settings: LesionSettings, sides: Sequence[int]) -> tuple[int, int]:
    """Sides of a box of whole pixels that holds any lesion wherever it lies, clipped to the image."""
    longest = [max(SMALLEST_LESION, settings.size_fractions[1] * side) for side in sides]
    if settings.rotate:
        longest = [max(longest)] * 2
    height, width = (math.ceil(length) + 2 for length in longest)
    return min(sides[0], height), min(sides[1], width)


# ---- texture

_NUM_BINS = 256


def otsu_threshold(images: Tensor) -> Tensor:
    """
    Otsu's threshold (B,) of each image (B, H, W), for a whole batch at once and without host synchronization.

    It equals ``skimage.filters.threshold_otsu`` to one of 256 bins; the threshold of a constant image is its value. The
    foreground is ``images > threshold``.
    """
    flat = images.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    bin_width = (high - low) / _NUM_BINS
    per_width = torch.where(high > low, 1 / bin_width, torch.zeros_like(bin_width))
    bins = ((flat - low) * per_width).long().clamp_(max=_NUM_BINS - 1)
    counts = torch.zeros((flat.shape[0], _NUM_BINS), dtype=torch.long, device=flat.device)
    counts.scatter_add_(1, bins, torch.ones_like(counts[:, :1]).expand_as(bins))
    # sums of integers are exact, so that ties (empty bins between two modes) resolve alike on every device
    count_below = counts.cumsum(1)
    level_below = (counts * torch.arange(_NUM_BINS, device=flat.device)).cumsum(1)
    exact = widest_float(flat.device)
    weight = count_below.to(exact) / flat.shape[1]
    level = level_below.to(exact) / flat.shape[1]
    spread = weight * (1 - weight)
    variance = torch.where(
        spread > 0, (level[:, -1:] * weight - level).square() / spread, torch.zeros_like(spread)
    )
    best = variance.argmax(1, keepdim=True)
    return (low + (best + 0.5).to(flat.dtype) * bin_width).squeeze(1)


def random_foreground_points(images: Tensor, uniforms: Tensor) -> Tensor:
    """Random pixels of the bright (Otsu) foreground of images (B, H, W), all of them equally likely: (B, M, 2)."""
    flat = images.flatten(1)
    foreground = flat > otsu_threshold(images).unsqueeze(1)
    rank = foreground.cumsum(1, dtype=torch.int32)
    count = rank[:, -1:]
    wanted = (uniforms * count).int().minimum(count - 1) + 1
    anywhere = (uniforms * flat.shape[1]).long().clamp_(max=flat.shape[1] - 1)
    place = torch.where(count > 0, torch.searchsorted(rank, wanted), anywhere)
    width = images.shape[2]
    rows, columns = place.div(width, rounding_mode="floor"), place % width
    return torch.stack([rows, columns], dim=-1).to(uniforms.dtype) + 0.5
