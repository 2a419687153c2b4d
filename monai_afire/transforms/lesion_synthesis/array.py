# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Array transforms that turn one normal image into several lesion images with their lesion maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import RandomizableTransform
from monai.utils import TransformBackends, convert_to_dst_type, convert_to_tensor
from torch import Tensor

from monai_afire.transforms.base import check_prob
from monai_afire.transforms.lesion_synthesis.batched import (
    add_lesion_maps,
    check_image_range,
    check_num_masks,
    render_lesion_maps,
)
from monai_afire.transforms.lesion_synthesis.parameters import (
    LesionSettings,
    draw_lesion_parameters,
    num_lesion_uniforms,
)


class LesionVariants(RandomizableTransform, ABC):
    """
    Base of the transforms that make N lesion variants of one normal image: ``(C, *S)`` in [0, 1] -> lesion images
    ``(N, C, *S)`` and lesion maps ``(N, 1, *S)``.

    A subclass says how many uniform random numbers one image needs, and what image and maps they stand for. All random
    numbers are drawn in ``randomize`` from ``self.R``, so that images treated with ``randomize=False`` get the same
    lesions at the same (relative) places.

    Args:
        num_masks: number N of lesion variants.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Raises:
        ValueError: on settings out of range.
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012

    def __init__(self, num_masks: int = 1, prob: float = 1.0) -> None:
        super().__init__(check_prob(prob))
        self.num_masks = check_num_masks(num_masks)
        self.uniforms: np.ndarray | None = None

    @abstractmethod
    def num_uniforms(self, spatial_dims: int) -> tuple[int, ...]:
        """Shape of the random numbers that an image of ``spatial_dims`` spatial dimensions needs."""

    @abstractmethod
    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """
        Make the lesion variants that the random numbers stand for.

        Args:
            image: (C, *S), checked to be floating point in [0, 1].
            uniforms: random numbers in [0, 1) in the shape given by ``num_uniforms``, float32.

        Returns:
            Lesion images (N, C, *S) and lesion maps (N, 1, *S).
        """

    def randomize(self, spatial_dims: int) -> None:
        """
        Draw the random numbers of one image.

        Args:
            spatial_dims: number of spatial dimensions of the image.
        """
        if self.prob < 1:  # without a draw of its own at 1, seeds keep the lesions that they have had
            super().randomize(None)
        self.uniforms = self.R.random_sample(self.num_uniforms(spatial_dims)).astype(np.float32)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, Tensor]:
        """
        Make the lesion variants of an image, which itself stays as it is.

        Args:
            img: normal image (C, *S), floating point in [0, 1].
            randomize: draw new lesions; False repeats the lesions of the last call.

        Returns:
            Lesion images (N, C, *S) and lesion maps (N, 1, *S), with the metadata of ``img``.

        Raises:
            ValueError: on an image of wrong shape, dtype or range.
            RuntimeError: when ``randomize`` is False and nothing was drawn for this number of dimensions before.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        plain = convert_to_tensor(image, track_meta=False)
        check_image_range(plain, channel_axis=0, check_values=plain.device.type == "cpu")
        shape = self.num_uniforms(plain.ndim - 1)
        if randomize:
            self.randomize(plain.ndim - 1)
        if self.uniforms is None or self.uniforms.shape != shape:
            raise RuntimeError(
                f"{type(self).__name__} cannot repeat its last lesions: "
                f"{'none were drawn yet' if self.uniforms is None else 'they had another number of dimensions'}. "
                f"Call it with randomize=True first."
            )
        if self._do_transform:
            lesion_images, maps = self.synthesize(plain, torch.as_tensor(self.uniforms, device=plain.device))
        else:
            lesion_images = plain.repeat(self.num_masks, *[1] * plain.ndim)
            maps = torch.zeros_like(lesion_images[:, :1])
        return convert_to_dst_type(lesion_images, image)[0], convert_to_dst_type(maps, image)[0]


class SynthLesionMask(LesionVariants):
    """
    Synthetic Lesion Masks (AFiRe, Eq. 2-5): add random oval lesions, with a texture cut out of the image itself.

    One image in, ``num_masks`` lesion variants and their additive maps M out; see ``synth_lesion_masks`` for the
    equations and for what the maps mean. Use it *before* intensity normalisation and without geometric augmentation
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
        self.settings = LesionSettings(num_lesions, lesion_size, gamma, amplitude, rotate, irregularity)

    def num_uniforms(self, spatial_dims: int) -> tuple[int, ...]:
        """(N, R, U): U numbers for each of at most R lesions in N variants."""
        return self.num_masks, int(self.settings.num_lesions[1]), num_lesion_uniforms(spatial_dims)

    @torch.no_grad()
    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Draw the lesions' parameters for the image and add the lesions."""
        images = image.unsqueeze(0)
        maps = render_lesion_maps(images, draw_lesion_parameters(images, self.settings, uniforms.unsqueeze(0)))
        return add_lesion_maps(images, maps)[0], maps[0].to(image.dtype)
