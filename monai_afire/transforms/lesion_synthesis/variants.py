# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bases of the transforms that add synthetic lesions to a normal image, and tell where."""

from __future__ import annotations

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

from monai_afire.transforms.base import (
    OccasionalTransform,
    RandomArrayTransformd,
    check_image_range,
)


class LesionVariants(OccasionalTransform, ABC):
    """
    Base of the transforms that make lesion images of one normal image ``(C, H, W)`` in [0, 1], with their lesion maps.

    A subclass says how many uniform random numbers one image needs, and makes images and maps from them.

    Args:
        num_masks: number N of lesion images. One has the shape of the image, several have an axis for them in front.
        prob: probability of lesions; otherwise the lesion images are copies of the image, and their maps are 0.
    """

    uniforms: np.ndarray  # of the last draw

    def __init__(self, num_masks: int = 1, prob: float = 1.0) -> None:
        super().__init__(prob)
        self.num_masks = num_masks

    @property
    @abstractmethod
    def num_uniforms(self) -> tuple[int, ...]:
        """Shape of the random numbers that an image needs."""

    @abstractmethod
    def synthesize(self, image: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Lesion images (N, C, H, W) and maps (N, 1, H, W) of an image (C, H, W), from numbers in [0, 1)."""

    def without_lesions(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of an image (C, H, W) and empty maps: (N, C, H, W) and (N, 1, H, W)."""
        copies = image.repeat(self.num_masks, 1, 1, 1)
        return copies, torch.zeros_like(copies[:, :1])

    def randomize(self, data: Any = None) -> None:
        """Draw the random numbers of one image."""
        self.draw_whether()
        self.uniforms = self.R.random_sample(self.num_uniforms).astype(np.float32)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, Tensor]:
        """
        Add lesions to copies of an image ``(C, H, W)`` in [0, 1].

        Args:
            img: normal image.
            randomize: draw new lesions; False repeats those of the last call, at the same (relative) places.

        Returns:
            Lesion image ``(C, H, W)`` and lesion map ``(1, H, W)``, with the metadata of ``img``; ``(N, C, H, W)`` and
            ``(N, 1, H, W)`` with ``num_masks`` above 1.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        plain = convert_to_tensor(image, track_meta=False)
        check_image_range(plain)
        if randomize:
            self.randomize()
        if self._do_transform:
            uniforms = torch.as_tensor(self.uniforms, device=plain.device)
            lesion_images, maps = self.synthesize(plain, uniforms)
        else:
            lesion_images, maps = self.without_lesions(plain)
        if self.num_masks == 1:
            lesion_images, maps = lesion_images[0], maps[0]
        return convert_to_dst_type(lesion_images, image)[0], convert_to_dst_type(maps, image)[0]


class LesionVariantsd(RandomArrayTransformd):
    """
    Base of the dictionary transforms around a :class:`LesionVariants` transform; the images themselves do not change.

    All keys share one random draw. Since the texture of a lesion comes from its own image, lesions of two different
    images share place, size and shape, but not texture.
    """

    def __init__(
        self,
        keys: KeysCollection,
        transform: LesionVariants,
        lesion_key: KeysCollection = "lesion_image",
        mask_key: KeysCollection = "lesion_mask",
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, transform, allow_missing_keys)
        names = zip(ensure_tuple(lesion_key), ensure_tuple(mask_key), strict=True)
        self.new_keys = dict(zip(self.keys, names, strict=True))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Add the lesion image and the lesion map of each key to a copy of the data."""
        output = dict(data)
        for key, lesion_image_and_map in self.transformed(data):
            output.update(zip(self.new_keys[key], lesion_image_and_map, strict=True))
        return output
