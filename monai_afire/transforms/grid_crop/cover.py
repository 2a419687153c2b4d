# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Resizing ahead of grid crops, as a transform of its own, so that caches can keep its result."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from monai.config.type_definitions import NdarrayOrTensor
from monai.data import MetaTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import InvertibleTransform
from monai.utils import TransformBackends, convert_to_tensor
from torch import Tensor

from monai_afire.transforms.argument_checks import check_positive, check_shape, per_axis
from monai_afire.transforms.base import ArrayTransformd
from monai_afire.transforms.grid_crop.geometry import cover_size, float_values, resized_box


class ResizeToCover(InvertibleTransform):
    """
    Resize an image, aspect kept, to the smallest size that covers a given one; nothing is cut off.

    :class:`GridCropPair` does the same first of all. Before it, with ``size`` its ``grid * cell``, this transform
    changes none of its crops, but is not random: a cached data set keeps its small result, not the whole file.
    ``inverse`` resizes back to the size before.

    Args:
        size: pixels per axis to cover: one number, or one for each axis.

    Raises:
        ValueError: for a size below 1.

    Example:
        >>> import torch
        >>> tuple(ResizeToCover(32)(torch.rand(1, 100, 80)).shape)
        (1, 40, 32)
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = check_positive("size", size)

    def __call__(self, img: NdarrayOrTensor) -> Tensor:
        """
        Resize an image without changing it.

        Args:
            img: ``(C, *S)``; integer images give float32.

        Returns:
            ``(C, *T)``, no axis of T below ``size``. A MetaTensor gives one whose affine matrix follows.

        Raises:
            ValueError: for an image with an empty axis.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        check_shape(image)
        spatial_size = image.shape[1:]
        target = per_axis("size", self.size, image.ndim - 1)
        covered = _resized(image, cover_size(spatial_size, target))
        if isinstance(covered, MetaTensor):
            self.push_transform(
                covered, extra_info={"spatial_size": [int(side) for side in spatial_size]}
            )
        return covered

    def inverse(self, data: MetaTensor) -> MetaTensor:
        """
        Resize back to the size before.

        Args:
            data: what a call has returned, ``(C, *T)``, a MetaTensor.

        Returns:
            ``(C, *S)``, whose affine matrix follows.
        """
        size = self.get_most_recent_transform(data)["extra_info"]["spatial_size"]
        restored: MetaTensor = _resized(data, size)
        self.pop_transform(restored)
        return restored


class ResizeToCoverd(ArrayTransformd, InvertibleTransform):
    """
    Dictionary version of :class:`ResizeToCover`.

    Args:
        keys: keys of the images.
        settings: as for :class:`ResizeToCover`.
        allow_missing_keys: do not raise an error if a key is missing.

    Example:
        >>> import torch
        >>> tuple(ResizeToCoverd("image", 32)({"image": torch.rand(1, 100, 80)})["image"].shape)
        (1, 40, 32)
    """

    array_class = ResizeToCover

    def inverse(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Resize the images of one item back to their sizes before. The item itself does not change."""
        item = dict(data)
        for key in self.key_iterator(item):
            item[key] = self.transform.inverse(item[key])
        return item


def _resized(image: Tensor, size: Sequence[int]) -> Any:
    """The whole image at another size."""
    values = float_values(image)
    return resized_box(values, image, np.zeros(len(size), int), np.asarray(values.shape[1:]), size)


ResizeToCoverD = ResizeToCoverDict = ResizeToCoverd
