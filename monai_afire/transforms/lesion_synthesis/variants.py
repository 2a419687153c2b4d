# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bases of the transforms that turn one normal image into several lesion images with their lesion maps."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.utils import convert_to_dst_type, convert_to_tensor, ensure_tuple
from torch import Tensor

from monai_afire.transforms.argument_checks import check_image_range, check_positive
from monai_afire.transforms.base import OccasionalTransform, RandomArrayTransformd, no_last_draw


class LesionVariants(OccasionalTransform, ABC):
    """
    Base of the transforms that make N lesion variants of one normal image: ``(C, *S)`` in [0, 1] -> lesion images
    ``(N, C, *S)`` and lesion maps ``(N, 1, *S)``.

    A subclass says how many uniform random numbers one image needs, and makes image and maps from them. All random
    numbers are drawn in ``randomize`` from ``self.R``, so that images treated with ``randomize=False`` get the same
    lesions at the same (relative) places.

    Args:
        num_masks: number N of lesion variants.
        prob: probability of lesions; otherwise the variants are copies of the image, and their maps are 0.

    Raises:
        ValueError: on settings out of range.
    """

    def __init__(self, num_masks: int = 1, prob: float = 1.0) -> None:
        super().__init__(prob)
        (self.num_masks,) = check_positive("num_masks", num_masks)
        self.uniforms: np.ndarray | None = None

    @abstractmethod
    def num_uniforms(self, spatial_dims: int) -> tuple[int, ...]:
        """Shape of the random numbers that an image of ``spatial_dims`` spatial dimensions needs."""

    @abstractmethod
    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """
        Make the lesion variants from the random numbers.

        Args:
            image: (C, *S), checked to be floating point in [0, 1].
            uniforms: random numbers in [0, 1) in the shape given by ``num_uniforms``, float32.

        Returns:
            Lesion images (N, C, *S) and lesion maps (N, 1, *S).
        """

    def without_lesions(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of an image (C, *S) and empty maps: (N, C, *S) and (N, 1, *S)."""
        copies = image.repeat(self.num_masks, *[1] * image.ndim)
        return copies, torch.zeros_like(copies[:, :1])

    def randomize(self, spatial_dims: int) -> None:
        """
        Draw the random numbers of one image.

        Args:
            spatial_dims: number of spatial dimensions of the image.
        """
        self.draw_whether()
        self.uniforms = self.R.random_sample(self.num_uniforms(spatial_dims)).astype(np.float32)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, Tensor]:
        """
        Make the lesion variants of an image without changing it.

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
        check_image_range(plain)
        shape = self.num_uniforms(plain.ndim - 1)
        if randomize:
            self.randomize(plain.ndim - 1)
        if self.uniforms is None or self.uniforms.shape != shape:
            raise no_last_draw(self, f"an image of {plain.ndim - 1} spatial dimensions")
        if self._do_transform:
            lesion_images, maps = self.synthesize(
                plain, torch.as_tensor(self.uniforms, device=plain.device)
            )
        else:
            lesion_images, maps = self.without_lesions(plain)
        return convert_to_dst_type(lesion_images, image)[0], convert_to_dst_type(maps, image)[0]


class LesionVariantsd(RandomArrayTransformd):
    """
    Base of the dictionary transforms around a ``LesionVariants`` transform, their ``array_class``.

    For each key the lesion images (N, C, *S) are stored under its lesion key and the lesion maps (N, 1, *S) under its
    mask key; the keys themselves do not change. All keys share one random draw. Since the texture of a lesion comes
    from its own image, lesions of two different images share place, size and shape, but not texture.

    Args:
        keys: keys of the normal images (C, *S) in [0, 1].
        lesion_key: new key of the lesion images; one for each of the ``keys``.
        mask_key: new key of the lesion maps; one for each of the ``keys``.
        fixed_by: key of a text, such as the file's name, that determines the lesions: an image then has the same N
            lesion variants in every epoch. None draws new ones each time.
        settings: as for the array transform.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: when there is not one lesion key and one mask key per key, or when any two keys are the same.
    """

    def __init__(
        self,
        keys: KeysCollection,
        lesion_key: KeysCollection = "lesion_image",
        mask_key: KeysCollection = "lesion_mask",
        fixed_by: Hashable | None = None,
        allow_missing_keys: bool = False,
        **settings: Any,
    ) -> None:
        self.lesion_key, self.mask_key = ensure_tuple(lesion_key), ensure_tuple(mask_key)
        self.fixed_by = fixed_by
        super().__init__(
            keys,
            new_keys=(*self.lesion_key, *self.mask_key),
            allow_missing_keys=allow_missing_keys,
            **settings,
        )
        for name, new_keys in (("lesion_key", self.lesion_key), ("mask_key", self.mask_key)):
            if len(new_keys) != len(self.keys):
                raise ValueError(
                    f"{name} must name one new key for each of the keys {self.keys}, got {new_keys}."
                )

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """
        Add the lesion images and lesion maps to a copy of the data.

        Args:
            data: dictionary with the normal images (C, *S).

        Returns:
            The data with two more entries per key.
        """
        output = dict(data)
        if self.fixed_by is not None:
            self.transform.set_random_state(seed=zlib.crc32(str(data[self.fixed_by]).encode()))
        new_keys = dict(
            zip(self.keys, zip(self.lesion_key, self.mask_key, strict=True), strict=True)
        )
        for key, lesion_images_and_maps in self.transformed(data):
            output.update(zip(new_keys[key], lesion_images_and_maps, strict=True))
        return output
