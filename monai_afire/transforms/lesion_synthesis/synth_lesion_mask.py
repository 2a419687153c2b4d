# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Synthetic Lesion Masks (AFiRe, Eq. 2-5) as transforms of one image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from monai_afire.transforms.lesion_synthesis.batched import add_lesion_maps, render_lesion_maps
from monai_afire.transforms.lesion_synthesis.parameters import (
    LesionSettings,
    draw_lesion_parameters,
    num_lesion_uniforms,
)
from monai_afire.transforms.lesion_synthesis.variants import LesionVariants, LesionVariantsd


class SynthLesionMask(LesionVariants):
    """
    Synthetic Lesion Masks (AFiRe, Eq. 2-5): add random oval lesions, with a texture cut out of the image itself.

    One image in, ``num_masks`` lesion variants and their additive maps M out; see ``synth_lesion_masks`` for the
    equations and for what the maps mean. Use it *before* intensity normalization and without geometric augmentation
    after it. Changes nothing in its input.

    Args:
        num_masks: number N of lesion variants of the image (paper: 9).
        num_lesions: smallest and largest number of lesions per variant.
        lesion_size: range of the axis lengths of a lesion: pixels for an image of side 224 (scaled with each side of
            the image), or fractions of the side if below 1. Never less than 3 pixels.
        gamma: width of the profile.
        amplitude: range of the strength; 1 adds the texture at full brightness.
        rotate: turn each lesion at random.
        irregularity: depth of the irregularity of the boundary, 0 (an ellipse) to 0.5.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Raises:
        ValueError: on settings out of range.

    Example:
        >>> transform = SynthLesionMask(num_masks=2).set_random_state(seed=0)
        >>> lesion_images, maps = transform(torch.rand(1, 64, 64))
        >>> tuple(lesion_images.shape), tuple(maps.shape)
        ((2, 1, 64, 64), (2, 1, 64, 64))
    """

    def __init__(
        self,
        num_masks: int = 1,
        num_lesions: Sequence[int] = (1, 4),
        lesion_size: Sequence[float] = (16, 64),
        gamma: float = 0.5,
        amplitude: Sequence[float] = (0.15, 0.5),
        rotate: bool = True,
        irregularity: float = 0.3,
        prob: float = 1.0,
    ) -> None:
        super().__init__(num_masks, prob)
        self.settings = LesionSettings(
            num_lesions, lesion_size, gamma, amplitude, rotate, irregularity
        )

    def num_uniforms(self, spatial_dims: int) -> tuple[int, ...]:
        """(N, R, U): U numbers for each of at most R lesions in N variants."""
        return self.num_masks, int(self.settings.num_lesions[1]), num_lesion_uniforms(spatial_dims)

    @torch.no_grad()
    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Draw the lesions' parameters for the image and add the lesions."""
        images = image.unsqueeze(0)
        maps = render_lesion_maps(
            images, draw_lesion_parameters(images, self.settings, uniforms.unsqueeze(0))
        )
        return add_lesion_maps(images, maps)[0], maps[0].to(image.dtype)


class SynthLesionMaskd(LesionVariantsd):
    """
    Dictionary-based wrapper of ``SynthLesionMask``: adds N lesion variants and their maps; ``keys`` do not change.

    Args:
        keys: keys of the normal images (C, *S), floating point in [0, 1]. All keys share one random draw.
        lesion_key: new key of the lesion images (N, C, *S), "lesion_image" by default; one per key.
        mask_key: new key of the lesion maps (N, 1, *S), "lesion_mask" by default; one per key.
        fixed_by: key of a text that determines the lesions, see ``LesionVariantsd``.
        settings: as for ``SynthLesionMask``.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range; when called, on an image of wrong shape, dtype or range.

    Example:
        >>> transform = SynthLesionMaskd("image", num_masks=2).set_random_state(seed=0)
        >>> data = transform({"image": torch.rand(1, 64, 64)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 64, 64), 'lesion_image': (2, 1, 64, 64), 'lesion_mask': (2, 1, 64, 64)}
    """

    array_class = SynthLesionMask


SynthLesionMaskD = SynthLesionMaskDict = SynthLesionMaskd
