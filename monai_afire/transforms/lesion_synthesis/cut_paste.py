# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""CutPaste: rectangles cut out of an image and pasted elsewhere in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from monai_afire.transforms.argument_checks import check_range
from monai_afire.transforms.lesion_synthesis.variants import LesionVariants, LesionVariantsd


class CutPaste(LesionVariants):
    """
    CutPaste (Li et al., CVPR 2021): a rectangle is cut out of the image and pasted at another random place.

    A comparator of ``SynthLesionMask`` with the same interface, in 2-D and 3-D. The lesion map is 1 in the pasted
    rectangle and 0 elsewhere.

    Args:
        num_masks: number N of variants of the image.
        area: range of the pasted rectangle's share of the image's area (volume), drawn uniformly.
        aspect_ratio: range of the ratio of the rectangle's sides (relative to the image's sides; of each further to the
            first axis), drawn log-uniformly.
        jitter: the pasted intensities are multiplied by a random factor in [1 - jitter, 1 + jitter] and clipped to
            [0, 1]; 0 pastes them unchanged.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Raises:
        ValueError: on settings out of range.

    Example:
        >>> import torch
        >>> transform = CutPaste(num_masks=2).set_random_state(seed=0)
        >>> lesion_images, maps = transform(torch.rand(1, 64, 64))
        >>> tuple(lesion_images.shape), maps.unique().tolist()
        ((2, 1, 64, 64), [0.0, 1.0])
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
        if area[1] == 1:
            raise ValueError(
                f"area must be below 1, so that something of the image stays, got {area!r}."
            )
        self.aspect_ratio = check_range("aspect_ratio", aspect_ratio)
        if not 0 <= jitter < 1:
            raise ValueError(f"jitter must be in [0, 1), got {jitter!r}.")
        self.jitter = jitter

    def num_uniforms(self, spatial_dims: int) -> tuple[int, ...]:
        """(N, 1 + 3 D): jitter factor, area, D - 1 ratios, D source and D target positions."""
        return self.num_masks, 1 + 3 * spatial_dims

    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Cut and paste one rectangle per variant."""
        lesion_images, maps = self.without_lesions(image)
        spatial_shape = image.shape[1:]
        dims = len(spatial_shape)
        drawn = uniforms.split((1, 1, dims - 1, dims, dims), dim=1)
        variants = zip(*(numbers.tolist() for numbers in drawn), strict=True)
        for variant, ((brightness,), (area,), ratios, source, target) in enumerate(variants):
            sides = self._rectangle(area, ratios, spatial_shape)
            cut = (slice(None), *_place(source, sides, spatial_shape))
            paste = (slice(None), *_place(target, sides, spatial_shape))
            factor = 1 + self.jitter * (2 * brightness - 1)
            lesion_images[variant][paste] = (image[cut] * factor).clamp_(0, 1)
            maps[variant][paste] = 1
        return lesion_images, maps

    def _rectangle(
        self, area: float, ratios: Sequence[float], spatial_shape: Sequence[int]
    ) -> list[int]:
        """Sides in whole pixels, at least 1 and at most those of the image."""
        low, high = self.area
        share = low + (high - low) * area
        shortest, longest = (math.log(ratio) for ratio in self.aspect_ratio)
        logs = [0.0, *(shortest + (longest - shortest) * u for u in ratios)]
        mean = sum(logs) / len(logs)
        sides: list[int] = []
        for log, side in zip(logs, spatial_shape, strict=True):
            fraction = share ** (1 / len(logs)) * math.exp(log - mean)
            sides.append(min(side, max(1, round(fraction * side))))
        return sides


class CutPasted(LesionVariantsd):
    """
    Dictionary-based wrapper of ``CutPaste``: adds N lesion variants and their maps; ``keys`` do not change.

    Args:
        keys: keys of the normal images (C, *S), floating point in [0, 1]. All keys share one random draw.
        lesion_key: new key of the lesion images (N, C, *S), "lesion_image" by default; one per key.
        mask_key: new key of the lesion maps (N, 1, *S), "lesion_mask" by default; one per key.
        fixed_by: key of a text that determines the lesions, see ``LesionVariantsd``.
        settings: as for ``CutPaste``.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range; when called, on an image of wrong shape, dtype or range.
    """

    array_class = CutPaste


CutPasteD = CutPasteDict = CutPasted


def _place(
    position: Sequence[float], sides: Sequence[int], spatial_shape: Sequence[int]
) -> tuple[slice, ...]:
    """A box inside the image; each position in [0, 1) selects one of the places at which it fits."""
    box: list[slice] = []
    for uniform, length, side in zip(position, sides, spatial_shape, strict=True):
        last = side - length
        start = min(int(uniform * (last + 1)), last)
        box.append(slice(start, start + length))
    return tuple(box)
