# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Distortion of the patch order of an image, which PEAC's student classifies back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.utils import convert_to_dst_type, convert_to_tensor, ensure_tuple_rep
from torch import Tensor

from monai_afire.transforms.base import OccasionalTransform, RandomArrayTransformd


class RandPatchShuffle(OccasionalTransform):
    """
    Put the N patches of an image into random order (PEAC's patch order distortion).

    ``order[n]`` is the original (row-major) index of the patch that is now at place n: the class to predict for place
    n. With the patches in rows, ``shuffled = original[order]`` and ``original = shuffled[numpy.argsort(order)]``.

    Args:
        patch_size: pixels per axis of a patch: one number, or one for each axis.
        prob: probability of shuffling; otherwise the order is 0, 1, ..., N - 1.

    Example:
        >>> transform = RandPatchShuffle(patch_size=16).set_random_state(seed=0)
        >>> shuffled, order = transform(torch.rand(1, 64, 64))
        >>> tuple(shuffled.shape), order.shape, sorted(order.tolist()) == list(range(16))
        ((1, 64, 64), (16,), True)
    """

    order: np.ndarray  # of the last draw

    def __init__(self, patch_size: int | Sequence[int], prob: float = 1.0) -> None:
        super().__init__(prob)
        self.patch_size = ensure_tuple_rep(patch_size, 2)

    def randomize(self, num_patches: int) -> None:
        """Draw whether to shuffle, and the order of ``num_patches`` patches."""
        super().randomize(None)
        order = self.R.permutation(num_patches) if self._do_transform else np.arange(num_patches)
        self.order = order.astype(np.int64)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> tuple[Tensor, np.ndarray]:
        """
        Shuffle the patches of an image ``(C, H, W)``, whose sides are multiples of the patch size.

        Returns:
            The shuffled image ``(C, H, W)``, and the order ``(N,)``, int64; ``randomize=False`` repeats the last order.
        """
        image = convert_to_tensor(img, track_meta=get_track_meta())
        plain = convert_to_tensor(image, track_meta=False)
        height, width = self.patch_size
        cells = plain.unflatten(2, (-1, width)).unflatten(1, (-1, height))
        places = cells.permute(1, 3, 0, 2, 4)  # (rows, columns, C, height, width)
        patches = places.flatten(0, 1)
        if randomize:
            self.randomize(len(patches))
        shuffled = patches[torch.as_tensor(self.order, device=plain.device)].reshape(places.shape)
        result = shuffled.permute(2, 0, 3, 1, 4).reshape(plain.shape)
        return convert_to_dst_type(result, image, dtype=result.dtype)[0], self.order.copy()


class RandPatchShuffled(RandomArrayTransformd):
    """
    Dictionary version of :class:`RandPatchShuffle`: replaces each key, adds ``<key>_order`` (N,) and ``shuffled``.

    The arguments of :class:`RandPatchShuffle` follow the keys of the images ``(C, H, W)``, which share one draw. The
    input tensors do not change: copy the key before (CopyItemsd) to keep both.
    """

    array = RandPatchShuffle

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Shuffle the patches of the images in a copy of the data."""
        output = dict(data)
        for key, (image, order) in self.transformed(data):
            output.update({key: image, f"{key}_order": order})
            output["shuffled"] = self.transform._do_transform
        return output


RandPatchShuffleD = RandPatchShuffleDict = RandPatchShuffled
