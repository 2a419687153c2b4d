# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Resizing ahead of grid crops, as a transform of its own, so that caches can keep its result."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data import MetaTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import InvertibleTransform, MapTransform
from monai.utils import TransformBackends, convert_to_dst_type, convert_to_tensor, ensure_tuple_rep
from torch import Tensor

from monai_afire.transforms.grid_crop.geometry import check_positive, cover_size, moved_affine, resize_separable


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
        >>> tuple(ResizeToCover(32)(torch.rand(1, 100, 80)).shape)
        (1, 40, 32)
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = check_positive("size", [size] if isinstance(size, int) else size)

    def __call__(self, img: NdarrayOrTensor) -> Tensor:
        """
        Resize an image, which itself stays as it is.

        Args:
            img: ``(C, *S)``; integer images give float32.

        Returns:
            ``(C, *T)``, no axis of T below ``size``. A MetaTensor gives one whose affine matrix follows.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        spatial_size = image.shape[1:]
        target = ensure_tuple_rep(self.size if len(self.size) > 1 else self.size[0], image.ndim - 1)
        covered = _resized(image, cover_size(spatial_size, target))
        if isinstance(covered, MetaTensor):
            self.push_transform(covered, extra_info={"spatial_size": [int(side) for side in spatial_size]})
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


class ResizeToCoverd(MapTransform, InvertibleTransform):
    """
    Dictionary version of :class:`ResizeToCover`.

    Args:
        keys: keys of the images.
        size: as for :class:`ResizeToCover`.
        allow_missing_keys: do not raise an error if a key is missing.

    Example:
        >>> tuple(ResizeToCoverd("image", 32)({"image": torch.rand(1, 100, 80)})["image"].shape)
        (1, 40, 32)
    """

    backend = ResizeToCover.backend

    def __init__(self, keys: KeysCollection, size: int | Sequence[int], allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.resize = ResizeToCover(size)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Resize the images of one item; the item itself is left as it is."""
        item = dict(data)
        for key in self.key_iterator(item):
            item[key] = self.resize(item[key])
        return item

    def inverse(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Resize the images of one item back to the sizes before; the item itself is left as it is."""
        item = dict(data)
        for key in self.key_iterator(item):
            item[key] = self.resize.inverse(item[key])
        return item


def _resized(image: Tensor, size: Sequence[int]) -> Any:
    """The image at another size, with its affine matrix if it has one; integers give float32."""
    plain = convert_to_tensor(image, track_meta=False)
    values = plain.to(torch.float64 if plain.dtype == torch.float64 else torch.float32)
    with torch.no_grad():
        resized = resize_separable(values, size)
    resized = resized.to(plain.dtype) if plain.is_floating_point() else resized
    if not isinstance(image, MetaTensor):
        return resized
    result: MetaTensor = convert_to_dst_type(resized, image, dtype=resized.dtype)[0]
    scale = np.asarray(plain.shape[1:]) / np.asarray(resized.shape[1:])
    result.affine = moved_affine(image.affine, scale, 0.5 * scale - 0.5)
    return result


ResizeToCoverD = ResizeToCoverDict = ResizeToCoverd
