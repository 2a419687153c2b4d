# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Distortion of the patch order of an image, which PEAC's student classifies back."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.utils import convert_to_dst_type, convert_to_tensor, ensure_tuple
from torch import Tensor

from monai_afire.transforms.argument_checks import check_positive, check_shape, patches_per_axis
from monai_afire.transforms.base import OccasionalTransform, RandomArrayTransformd, no_last_draw


class ShufflePatches(OccasionalTransform):
    """
    Put the N patches of an image into random order (PEAC's patch order distortion).

    ``order[n]`` is the original (row-major) index of the patch that is now at place n: the class to predict for place
    n. With the patches in rows, ``shuffled = original[order]`` and ``original = shuffled[numpy.argsort(order)]``.

    Args:
        patch_size: pixels per axis of a patch: one number, or one for each axis.
        prob: probability of shuffling; otherwise the order is 0, 1, ..., N - 1.

    Raises:
        ValueError: on settings out of range.

    Example:
        >>> transform = ShufflePatches(patch_size=16).set_random_state(seed=0)
        >>> shuffled, order = transform(torch.rand(1, 64, 64))
        >>> tuple(shuffled.shape), order.shape, sorted(order.tolist()) == list(range(16))
        ((1, 64, 64), (16,), True)
    """

    def __init__(self, patch_size: int | Sequence[int], prob: float = 1.0) -> None:
        super().__init__(prob)
        self.patch_size = check_positive("patch_size", patch_size)
        self.order: np.ndarray | None = None

    @property
    def shuffled(self) -> bool:
        """Whether the last draw was to shuffle."""
        return self.order is not None and self._do_transform

    def randomize(self, num_patches: int) -> None:
        """
        Draw whether to shuffle, and the order.

        Args:
            num_patches: number N of patches.
        """
        super().randomize(None)
        order = self.R.permutation(num_patches) if self._do_transform else np.arange(num_patches)
        self.order = order.astype(np.int64)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, np.ndarray]:
        """
        Shuffle the patches of an image without changing it.

        Args:
            img: image (C, *S); each side a multiple of the patch size.
            randomize: draw a new order; False repeats that of the last call.

        Returns:
            The shuffled image (C, *S), and the order (N,), int64.

        Raises:
            ValueError: when the image cannot be divided into whole patches.
            RuntimeError: when ``randomize`` is False and the last order is not one of as many patches.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        plain = convert_to_tensor(image, track_meta=False)
        check_shape(plain)
        size, dims = plain.shape[1:], plain.ndim - 1
        counts = patches_per_axis(size, self.patch_size)
        num_patches = math.prod(counts)
        if randomize:
            self.randomize(num_patches)
        if self.order is None or len(self.order) != num_patches:
            raise no_last_draw(self, f"an image of {num_patches} patches")
        # (C, n1, p1, n2, p2, ...) -> (n1, n2, ..., C, p1, p2, ...), where the first axes are the place
        split_shape = [len(plain)]
        for count, side in zip(counts, size, strict=True):
            split_shape += [count, side // count]
        axes = [*range(1, 2 * dims, 2), 0, *range(2, 2 * dims + 1, 2)]
        places = plain.reshape(split_shape).permute(axes)
        order = torch.as_tensor(self.order, device=plain.device)
        shuffled = places.flatten(0, dims - 1)[order].reshape(places.shape)
        result = shuffled.permute(np.argsort(axes).tolist()).reshape(plain.shape)
        return convert_to_dst_type(result, image, dtype=result.dtype)[0], self.order.copy()


class ShufflePatchesd(RandomArrayTransformd):
    """
    Dictionary-based wrapper of ``ShufflePatches``: replaces each key, adds ``<key>_order`` (N,) and ``shuffled``.

    All keys share one draw. The input tensors do not change: copy the key before (CopyItemsd) to keep both.

    Args:
        keys: keys of the images (C, *S), all with equally many patches.
        settings: as for ``ShufflePatches``.
        shuffled_key: new key, True where the patches were shuffled.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range, or when the new keys are not all different.
    """

    array_class = ShufflePatches
    transform: ShufflePatches

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        shuffled_key: str = "shuffled",
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        new_keys = (*(f"{key}_order" for key in ensure_tuple(keys)), shuffled_key)
        super().__init__(
            keys,
            *settings,
            new_keys=new_keys,
            allow_missing_keys=allow_missing_keys,
            **named_settings,
        )
        self.shuffled_key = shuffled_key

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """
        Shuffle the patches of the images in a copy of the data.

        Args:
            data: dictionary with the images (C, *S).

        Returns:
            The data with shuffled images and the new entries.
        """
        output = dict(data)
        for key, (image, order) in self.transformed(data):
            output |= {
                key: image,
                f"{key}_order": order,
                self.shuffled_key: self.transform.shuffled,
            }
        return output


ShufflePatchesD = ShufflePatchesDict = ShufflePatchesd
