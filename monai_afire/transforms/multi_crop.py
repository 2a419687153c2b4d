# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Large and small random crops of one image, each with an appearance of its own (SwAV, DINO)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config.type_definitions import NdarrayOrTensor
from monai.transforms import Randomizable, Transform
from monai.utils import TransformBackends, convert_to_tensor, ensure_tuple_rep
from torch import Tensor

from monai_afire.transforms.base import RandomArrayTransformd, check_range, random_box
from monai_afire.transforms.grid_crop import float_values, resize

# draws of a box until one lies within the image, as in torchvision's RandomResizedCrop
_ATTEMPTS = 10
_SEEDS = 2**32

Box = tuple[slice, slice]


class RandMultiCrop(Randomizable, Transform):
    r"""
    G large (global) and N small (local) random crops of one image, resized to one size for each kind (multi-crop).

    A crop covers a random share of the image's area, uniform over ``global_scale`` or ``local_scale``; the ratio of its
    height to its width is log-uniform over ``aspect_ratio``; its place is uniform. Where ten draws do not fit into the
    image, the last one is cut down to it. Resizing is linear, with antialiasing.

    Args:
        global_size: pixels per axis of the global crops: one number, or one for each axis.
        local_size: pixels per axis of the local crops.
        num_global: G, at least 1.
        num_local: N, at least 0.
        global_scale: smallest and largest share of the image's area that a global crop covers, in (0, 1].
        local_scale: the same of a local crop.
        aspect_ratio: smallest and largest ratio of height to width in pixels.
        augment: called with every crop ``(C, *size)`` for its appearance, with the same size; a ``Compose`` of MONAI's
            (array) random transforms is seeded anew for each crop, from this transform's own draws. None for none.

    Example:
        >>> transform = RandMultiCrop(global_size=64, local_size=32, num_local=4).set_random_state(seed=0)
        >>> global_crops, local_crops = transform(torch.rand(1, 100, 80))
        >>> tuple(global_crops.shape), tuple(local_crops.shape)
        ((2, 1, 64, 64), (4, 1, 32, 32))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012
    # the last draw, of the global and of the local crops
    boxes: list[list[Box]]
    seeds: list[list[int]]

    def __init__(
        self,
        global_size: int | Sequence[int] = 224,
        local_size: int | Sequence[int] = 96,
        num_global: int = 2,
        num_local: int = 8,
        global_scale: Sequence[float] = (0.4, 1.0),
        local_scale: Sequence[float] = (0.05, 0.4),
        aspect_ratio: Sequence[float] = (3 / 4, 4 / 3),
        augment: Callable[[Tensor], Any] | None = None,
    ) -> None:
        self.sizes = ensure_tuple_rep(global_size, 2), ensure_tuple_rep(local_size, 2)
        self.counts = num_global, num_local
        self.scales = (
            check_range("global_scale", global_scale, 1),
            check_range("local_scale", local_scale, 1),
        )
        self.aspect_ratio = check_range("aspect_ratio", aspect_ratio)
        self.augment = augment

    def randomize(self, shape: Sequence[int]) -> None:
        """Draw the places of all crops, and the seeds of their appearances, for an image of this shape."""
        self.boxes = [
            [self._box(shape, scale) for _ in range(count)]
            for count, scale in zip(self.counts, self.scales, strict=True)
        ]
        self.seeds = [
            self.R.randint(_SEEDS, size=count, dtype=np.uint32).tolist() for count in self.counts
        ]

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, Tensor]:
        """
        Cut the crops out of an image ``(C, H, W)`` of any size; ``randomize=False`` repeats the last draw.

        Returns:
            Global crops ``(G, C, *global_size)`` and local crops ``(N, C, *local_size)``, plain tensors: crops of one
            batch have no common affine matrix. Integer images give float32.
        """
        image = convert_to_tensor(img, track_meta=False)
        values = float_values(image)
        dtype = image.dtype if image.is_floating_point() else values.dtype
        if randomize:
            self.randomize(image.shape[1:])
        kinds = zip(self.boxes, self.seeds, self.sizes, strict=True)
        global_crops, local_crops = (self._cut(values, *kind).to(dtype) for kind in kinds)
        return global_crops, local_crops

    def _cut(
        self, image: Tensor, boxes: Sequence[Box], seeds: Sequence[int], size: tuple[int, int]
    ) -> Tensor:
        """All crops of one kind, (crops, C, *size)."""
        crops = [image.new_empty((0, len(image), *size))]
        for (rows, columns), seed in zip(boxes, seeds, strict=True):
            crop = resize(image[:, rows, columns], size)
            # a copy: a crop of the whole image would else be the image itself, which an augmentation might change
            crop = crop.clone(memory_format=torch.contiguous_format)
            crops.append(self._appearance(crop, seed).unsqueeze(0))
        return torch.cat(crops)

    def _appearance(self, crop: Tensor, seed: int) -> Tensor:
        if self.augment is None:
            return crop
        if isinstance(self.augment, Randomizable):
            self.augment.set_random_state(seed=seed)
        return convert_to_tensor(self.augment(crop), track_meta=False).to(crop.dtype)

    def _box(self, shape: Sequence[int], scale: tuple[float, float]) -> Box:
        """A random box within the image."""
        for _ in range(_ATTEMPTS):
            height, width = self._sides(shape, scale)
            if height <= shape[0] and width <= shape[1]:
                break
        return random_box(self.R, shape, (min(height, shape[0]), min(width, shape[1])))

    def _sides(self, shape: Sequence[int], scale: tuple[float, float]) -> tuple[int, int]:
        """Sides of a random box in pixels, of random area and aspect; they may be longer than the image's."""
        area = self.R.uniform(*scale) * math.prod(shape)
        ratio = math.exp(self.R.uniform(*np.log(self.aspect_ratio)))
        width = area**0.5 * ratio**-0.5
        return max(round(width * ratio), 1), max(round(width), 1)


class RandMultiCropd(RandomArrayTransformd):
    """
    Dictionary version of :class:`RandMultiCrop`: adds stacks of crops of an image, "global_crops" and "local_crops".

    The image itself does not change; ``SelectItemsd`` drops it.

    The arguments of :class:`RandMultiCrop` follow the key of the image ``(C, H, W)``.

    Example:
        >>> from monai.transforms import RandAdjustContrast
        >>> transform = RandMultiCropd("image", num_local=3, augment=RandAdjustContrast(prob=0.5, gamma=(0.5, 2)))
        >>> data = transform.set_random_state(seed=0)({"image": torch.rand(1, 100, 80)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 100, 80), 'global_crops': (2, 1, 224, 224), 'local_crops': (3, 1, 96, 96)}
    """

    array = RandMultiCrop

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Add the crops to a copy of the data."""
        output = dict(data)
        for _, crops in self.transformed(data):
            output["global_crops"], output["local_crops"] = crops
        return output


RandMultiCropD = RandMultiCropDict = RandMultiCropd
