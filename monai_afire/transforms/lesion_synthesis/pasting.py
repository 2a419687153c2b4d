# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Comparators of ``SynthLesionMask``: CutPaste and AnatPaste, which paste parts of an image elsewhere in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from monai_afire.transforms.base import check_range
from monai_afire.transforms.lesion_synthesis.lung_mask import lung_depth
from monai_afire.transforms.lesion_synthesis.parameters import random_foreground_points
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import (
    LesionVariants,
    LesionVariantsd,
)


class CutPaste(LesionVariants):
    """
    CutPaste (Li et al., CVPR 2021): a rectangle is cut out of the image and pasted at another random place.

    The lesion map is 1 in the pasted rectangle and 0 elsewhere.

    Args:
        num_masks: number N of variants of the image. One has the image's own shape.
        area: range of the pasted rectangle's share of the image's area, drawn uniformly, below 1.
        aspect_ratio: range of the ratio of the rectangle's width to its height (relative to the image's sides), drawn
            log-uniformly.
        jitter: the pasted intensities are multiplied by a random factor in [1 - jitter, 1 + jitter] and clipped to
            [0, 1]; 0 pastes them unchanged.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Example:
        >>> transform = CutPaste().set_random_state(seed=0)
        >>> lesion_image, lesion_map = transform(torch.rand(1, 64, 64))
        >>> tuple(lesion_image.shape), lesion_map.unique().tolist()
        ((1, 64, 64), [0.0, 1.0])
    """

    def __init__(
        self,
        num_masks: int = 1,
        area: Sequence[float] = (0.02, 0.15),
        aspect_ratio: Sequence[float] = (0.3, 3.3),
        jitter: float = 0.1,
        prob: float = 1.0,
    ) -> None:
        super().__init__(num_masks, prob)
        self.area = check_range("area", area, 1)
        self.aspect_ratio = check_range("aspect_ratio", aspect_ratio)
        self.jitter = jitter

    @property
    def num_uniforms(self) -> tuple[int, ...]:
        """(N, 7): jitter factor, area, ratio, source (row, column), target (row, column)."""
        return self.num_masks, 7

    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Cut and paste one rectangle per variant."""
        lesion_images, maps = self.without_lesions(image)
        shape = image.shape[1:]
        for variant, (brightness, area, ratio, *places) in enumerate(uniforms.tolist()):
            sides = self._rectangle(area, ratio, shape)
            cut = (slice(None), *_place(places[:2], sides, shape))
            paste = (slice(None), *_place(places[2:], sides, shape))
            factor = 1 + self.jitter * (2 * brightness - 1)
            lesion_images[variant][paste] = (image[cut] * factor).clamp_(0, 1)
            maps[variant][paste] = 1
        return lesion_images, maps

    def _rectangle(self, area: float, ratio: float, shape: Sequence[int]) -> list[int]:
        """Sides in whole pixels, at least 1 and at most those of the image."""
        low, high = self.area
        side = (low + (high - low) * area) ** 0.5
        narrowest, widest = (math.log(bound) for bound in self.aspect_ratio)
        half = (narrowest + (widest - narrowest) * ratio) / 2
        fractions = side * math.exp(-half), side * math.exp(half)
        lengths = zip(fractions, shape, strict=True)
        return [min(length, max(1, round(part * length))) for part, length in lengths]


class CutPasted(LesionVariantsd):
    """Dictionary version of :class:`CutPaste`, whose arguments follow those of :class:`LesionVariantsd`, by name."""

    array = CutPaste


class AnatPaste(LesionVariants):
    """
    AnatPaste (Sato et al., 2023): a patch of the image is pasted into the lungs only, as a soft shadow.

    For chest radiographs (bright = dense). A rectangle is put around a random pixel of the lungs (``segment_lungs``;
    the whole image where no lung is found) and restricted to them. There the image is blended with a patch of the same
    size cut out around a random bright pixel of the image, ``x' = x + weight * (patch - x)``. The weight rises smoothly
    from 0 at the rims of rectangle and lungs, so that the shadow has no edge. The lesion map is the weight.

    Args:
        num_masks: number N of variants of the image. One has the image's own shape.
        patch_size: range of the rectangle's side lengths as fractions of the image sides, drawn uniformly.
        strength: range of the largest blending weight, drawn uniformly, in (0, 1].
        softness: width of the rim as a fraction of the shorter image side, in (0, 1).
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Example:
        >>> transform = AnatPaste(num_masks=2).set_random_state(seed=0)
        >>> lesion_images, maps = transform(torch.rand(1, 64, 64))
        >>> tuple(lesion_images.shape), tuple(maps.shape)
        ((2, 1, 64, 64), (2, 1, 64, 64))
    """

    def __init__(
        self,
        num_masks: int = 1,
        patch_size: Sequence[float] = (0.15, 0.4),
        strength: Sequence[float] = (0.3, 0.8),
        softness: float = 0.06,
        prob: float = 1.0,
    ) -> None:
        super().__init__(num_masks, prob)
        self.patch_size = check_range("patch_size", patch_size, 1)
        self.strength = check_range("strength", strength, 1)
        self.softness = softness

    @property
    def num_uniforms(self) -> tuple[int, ...]:
        """(N, 5): height, width, strength, place in the lungs, source of the patch."""
        return self.num_masks, 5

    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Blend one patch into the lungs per variant."""
        gray = image.to(torch.promote_types(image.dtype, torch.float32)).mean(0)
        depth = torch.from_numpy(lung_depth(gray)).to(gray)
        targets = random_foreground_points((depth > 0).to(gray)[None], uniforms[None, :, 3])[0]
        sources = random_foreground_points(gray[None], uniforms[None, :, 4])[0]
        low, high = self.patch_size
        sides = (low + (high - low) * uniforms[:, :2]) * uniforms.new_tensor(gray.shape)
        sizes = sides.round().clamp_(min=3).int().tolist()
        weakest, strongest = self.strength
        strength = weakest + (strongest - weakest) * uniforms[:, 2]
        lesion_images, maps = self.without_lesions(image)
        for n, size in enumerate(sizes):
            paste = _box(targets[n].tolist(), size, gray.shape)
            patch = gray[_box(sources[n].tolist(), size, gray.shape)]
            weight = strength[n] * self._soft_weight(depth, paste)
            every_channel = (slice(None), *paste)
            normal = image[every_channel]
            lesion_images[n][every_channel] = (normal + weight * (patch - normal)).clamp_(0, 1)
            maps[n, 0][paste] = weight.to(image.dtype)
        return lesion_images, maps

    def _soft_weight(self, depth: Tensor, box: tuple[slice, ...]) -> Tensor:
        """Weight in a box: a hill that falls to 0 at the rim of the box, and to 0 towards the rim of the lungs."""
        inside = depth[box]
        rim = (inside / (self.softness * min(depth.shape))).clamp(max=1)
        rim = rim * rim * (3 - 2 * rim)
        rows, columns = (_hill(length, depth) for length in inside.shape)
        return rim * rows.unsqueeze(1) * columns


class AnatPasted(LesionVariantsd):
    """Dictionary version of :class:`AnatPaste`, whose arguments follow those of :class:`LesionVariantsd`, by name."""

    array = AnatPaste


CutPasteD = CutPasteDict = CutPasted
AnatPasteD = AnatPasteDict = AnatPasted


def _place(
    position: Sequence[float], sides: Sequence[int], shape: Sequence[int]
) -> tuple[slice, ...]:
    """A box inside the image; each position in [0, 1) selects one of the places at which it fits."""
    box: list[slice] = []
    for uniform, length, side in zip(position, sides, shape, strict=True):
        last = side - length
        start = min(int(uniform * (last + 1)), last)
        box.append(slice(start, start + length))
    return tuple(box)


def _box(center: Sequence[float], size: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """A box of the given size around a point, moved inside the image."""
    box: list[slice] = []
    for middle, wanted, side in zip(center, size, shape, strict=True):
        length = min(wanted, side)
        start = min(max(int(middle) - length // 2, 0), side - length)
        box.append(slice(start, start + length))
    return tuple(box)


def _hill(length: int, like: Tensor) -> Tensor:
    """Raised cosine over the given number of pixels with a flat top, 0 one half pixel outside of both ends."""
    position = (torch.arange(length, dtype=like.dtype, device=like.device) + 0.5) / length
    return ((1.5 - 1.5 * torch.cos(2 * torch.pi * position)) / 2).clamp_(max=1)
