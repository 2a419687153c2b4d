# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Large and small random crops of one image, each with an appearance of its own (SwAV, DINO)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.transforms import Randomizable, Transform
from monai.utils import TransformBackends, convert_to_tensor, ensure_tuple
from torch import Tensor

from monai_afire.transforms.argument_checks import (
    check_positive,
    check_range,
    check_shape,
    per_axis,
)
from monai_afire.transforms.base import RandomArrayTransformd, no_last_draw
from monai_afire.transforms.grid_crop.geometry import float_values, resize_separable
from monai_afire.transforms.random_box import random_box

# draws of a box until one lies within the image, as in torchvision's RandomResizedCrop
_ATTEMPTS = 10
_SEEDS = 2**32


class MultiCrop(Randomizable, Transform):
    r"""
    G large (global) and N small (local) random crops of one image, resized to one size for each kind (multi-crop).

    A crop covers a random share of the image's area (volume), uniform over ``global_scale`` or ``local_scale``; the
    ratio of its first side to the others is log-uniform over ``aspect_ratio``; its place is uniform. Where ten draws do
    not fit into the image, the last one is cut down to it. Resizing is linear, with antialiasing.

    Args:
        global_size: pixels per axis of the global crops: one number, or one for each axis.
        local_size: pixels per axis of the local crops.
        num_global: G, at least 1.
        num_local: N, at least 0.
        global_scale: smallest and largest share of the image's area that a global crop covers, in (0, 1].
        local_scale: the same of a local crop.
        aspect_ratio: smallest and largest ratio of the first side to the others in pixels.
        augment: called with every crop ``(C, *size)`` for its appearance, with the same size; a ``Compose`` of MONAI's
            (array) random transforms is seeded anew for each crop, from this transform's own draws. None for none.

    Raises:
        ValueError: on settings out of range.

    Example:
        >>> transform = MultiCrop(global_size=64, local_size=32, num_local=4).set_random_state(seed=0)
        >>> global_crops, local_crops = transform(torch.rand(1, 100, 80))
        >>> tuple(global_crops.shape), tuple(local_crops.shape)
        ((2, 1, 64, 64), (4, 1, 32, 32))
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012

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
        self.sizes = (
            check_positive("global_size", global_size),
            check_positive("local_size", local_size),
        )
        if num_global < 1 or num_local < 0:
            raise ValueError(
                f"num_global must be at least 1 and num_local at least 0, got {num_global}, {num_local}."
            )
        self.counts = int(num_global), int(num_local)
        self.scales = (
            check_range("global_scale", global_scale, 1),
            check_range("local_scale", local_scale, 1),
        )
        self.aspect_ratio = check_range("aspect_ratio", aspect_ratio)
        self.augment = augment
        self.spatial_shape: tuple[int, ...] | None = None
        self.boxes: tuple[list[tuple[slice, ...]], ...] = ()
        self.seeds: tuple[list[int], ...] = ()

    def randomize(self, spatial_shape: Sequence[int]) -> None:
        """
        Draw the places of all crops, and the seeds of their appearances.

        Args:
            spatial_shape: of the image in pixels.
        """
        self.spatial_shape = tuple(spatial_shape)
        boxes: list[list[tuple[slice, ...]]] = []
        for count, scale in zip(self.counts, self.scales, strict=True):
            boxes.append([self._box(spatial_shape, scale) for _ in range(count)])
        self.boxes = tuple(boxes)
        self.seeds = tuple(
            self.R.randint(_SEEDS, size=count, dtype=np.uint32).tolist() for count in self.counts
        )

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, Tensor]:
        """
        Cut the crops out of an image without changing it.

        Args:
            img: image ``(C, *S)`` of any size; integer images give float32 crops.
            randomize: draw new crops; False repeats those of the last call.

        Returns:
            Global crops ``(G, C, *global_size)`` and local crops ``(N, C, *local_size)``, plain tensors: crops of one
            batch have no common affine matrix.

        Raises:
            ValueError: on an image of wrong shape.
            RuntimeError: when ``randomize`` is False and nothing was drawn for this size before.
        """
        image = convert_to_tensor(img, track_meta=False)
        check_shape(image)
        values = float_values(image)
        dtype = image.dtype if image.is_floating_point() else values.dtype
        shape = tuple(image.shape[1:])
        if randomize:
            self.randomize(shape)
        if self.spatial_shape != shape:
            raise no_last_draw(self, f"an image of {shape} pixels")
        kinds = zip(self.boxes, self.seeds, self.sizes, strict=True)
        with torch.no_grad():
            global_crops, local_crops = (self._cut(values, *kind).to(dtype) for kind in kinds)
        return global_crops, local_crops

    def _cut(
        self,
        image: Tensor,
        boxes: Sequence[tuple[slice, ...]],
        seeds: Sequence[int],
        size: tuple[int, ...],
    ) -> Tensor:
        """All crops of one kind, (crops, C, *size)."""
        pixels = per_axis("size", size, image.ndim - 1)
        crops = [image.new_empty((0, len(image), *pixels))]
        for box, seed in zip(boxes, seeds, strict=True):
            # a copy: a crop of the whole image would else be the image itself, which an augmentation might change
            inside = (slice(None), *box)
            crop = resize_separable(image[inside], pixels)
            crop = crop.clone(memory_format=torch.contiguous_format)
            crops.append(self._appearance(crop, seed).unsqueeze(0))
        return torch.cat(crops)

    def _appearance(self, crop: Tensor, seed: int) -> Tensor:
        if self.augment is None:
            return crop
        if isinstance(self.augment, Randomizable):
            self.augment.set_random_state(seed=seed)
        changed = convert_to_tensor(self.augment(crop), track_meta=False).to(crop.dtype)
        if changed.shape != crop.shape:
            shapes = f"{tuple(crop.shape)}, but returns {tuple(changed.shape)}"
            raise ValueError(
                f"augment must keep the shape of a crop, {shapes}: leave resizing to MultiCrop."
            )
        return changed

    def _box(self, spatial_shape: Sequence[int], scale: tuple[float, float]) -> tuple[slice, ...]:
        """A random box within the image."""
        sides = self._sides(spatial_shape, scale)
        for _ in range(_ATTEMPTS - 1):
            if all(side <= length for side, length in zip(sides, spatial_shape, strict=True)):
                break
            sides = self._sides(spatial_shape, scale)
        sides = [min(side, length) for side, length in zip(sides, spatial_shape, strict=True)]
        return random_box(self.R, spatial_shape, sides)

    def _sides(self, spatial_shape: Sequence[int], scale: tuple[float, float]) -> list[int]:
        """Sides of a random box in pixels, of random area and aspect; they may be longer than the image's."""
        dims = len(spatial_shape)
        side = (self.R.uniform(*scale) * math.prod(spatial_shape)) ** (1 / dims)
        ratio = math.exp(self.R.uniform(*np.log(self.aspect_ratio)))
        # the first side is ratio times the others, and the product of all is the area
        other = side * ratio ** (-1 / dims)
        return [max(round(length), 1) for length in (other * ratio, *[other] * (dims - 1))]


class MultiCropd(RandomArrayTransformd):
    """
    Dictionary-based wrapper of :class:`MultiCrop`: adds the crops of an image under two new keys, which are stacked.

    The image itself does not change; ``SelectItemsd`` drops it.

    Args:
        keys: key of the image (C, *S).
        settings: as for :class:`MultiCrop`.
        crop_keys: new keys of the global and of the local crops.
        allow_missing_keys: do not raise an error if the key is missing.

    Raises:
        ValueError: on settings out of range, more than one key, or when the new keys are not two different ones.

    Example:
        >>> from monai.transforms import RandAdjustContrast
        >>> transform = MultiCropd("image", 64, 32, num_local=3, augment=RandAdjustContrast(prob=0.5, gamma=(0.5, 2)))
        >>> data = transform.set_random_state(seed=0)({"image": torch.rand(1, 100, 80)})
        >>> {key: tuple(value.shape) for key, value in data.items()}
        {'image': (1, 100, 80), 'global_crops': (2, 1, 64, 64), 'local_crops': (3, 1, 32, 32)}
    """

    array_class = MultiCrop

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        crop_keys: Sequence[str] = ("global_crops", "local_crops"),
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        self.crop_keys = ensure_tuple(crop_keys)
        if len(self.crop_keys) != 2 or len(ensure_tuple(keys)) != 1:
            raise ValueError(
                f"MultiCropd takes one key and adds two, got {ensure_tuple(keys)} and {self.crop_keys}."
            )
        super().__init__(
            keys,
            *settings,
            new_keys=self.crop_keys,
            allow_missing_keys=allow_missing_keys,
            **named_settings,
        )

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """
        Add the crops to a copy of the data.

        Args:
            data: dictionary with the image (C, *S).

        Returns:
            The data with the two new entries.
        """
        output = dict(data)
        for _, crops in self.transformed(data):
            output.update(zip(self.crop_keys, crops, strict=True))
        return output


MultiCropD = MultiCropDict = MultiCropd
