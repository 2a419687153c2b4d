# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Distortion of the patch order of an image, which PEAC's student classifies back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.data.meta_obj import get_track_meta
from monai.transforms import RandomizableTransform
from monai.utils import TransformBackends, convert_to_dst_type, convert_to_tensor, ensure_tuple, ensure_tuple_rep
from torch import Tensor

from monai_afire.transforms.base import RandomArrayTransformd, check_prob


class ShufflePatches(RandomizableTransform):
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

    backend = [TransformBackends.TORCH]  # noqa: RUF012

    def __init__(self, patch_size: int | Sequence[int], prob: float = 1.0) -> None:
        super().__init__(check_prob(prob))
        self.patch_size = tuple(ensure_tuple(patch_size))
        if not self.patch_size or any(int(p) != p or p < 1 for p in self.patch_size):
            raise ValueError(f"patch_size must be whole and at least 1 in every axis, got {self.patch_size}.")
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
        Shuffle the patches of an image, which itself stays as it is.

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
        size, dims = plain.shape[1:], plain.ndim - 1
        if dims < 1 or 0 in plain.shape or len(self.patch_size) not in (1, dims):
            raise ValueError(f"Patches of {self.patch_size} do not fit an image of shape {tuple(plain.shape)} (C, *S).")
        patch = self.patch_size if len(self.patch_size) == dims else ensure_tuple_rep(self.patch_size[0], dims)
        if any(n % p for n, p in zip(size, patch, strict=True)):
            raise ValueError(
                f"An image of {tuple(size)} pixels cannot be divided into patches of {patch}: resize or pad it first."
            )
        counts = [n // p for n, p in zip(size, patch, strict=True)]
        if randomize:
            self.randomize(int(np.prod(counts)))
        if self.order is None or len(self.order) != np.prod(counts):
            raise RuntimeError(f"There is no last order of {np.prod(counts)} patches: call with randomize=True first.")
        # (C, n1, p1, n2, p2, ...) -> (n1, n2, ..., C, p1, p2, ...), where the first axes are the place
        split = plain.reshape(len(plain), *(length for pair in zip(counts, patch, strict=True) for length in pair))
        axes = [*range(1, 2 * dims, 2), 0, *range(2, 2 * dims + 1, 2)]
        places = split.permute(axes)
        shuffled = places.flatten(0, dims - 1)[torch.as_tensor(self.order, device=plain.device)]
        result = shuffled.reshape(places.shape).permute(np.argsort(axes).tolist()).reshape(plain.shape)
        return convert_to_dst_type(result, image, dtype=result.dtype)[0], self.order.copy()


class ShufflePatchesd(RandomArrayTransformd):
    """
    Dictionary-based wrapper of ``ShufflePatches``: replaces each key, adds ``<key>_order`` (N,) and ``shuffled``.

    All keys share one draw. The tensors themselves stay as they are: copy the key before (CopyItemsd) to keep both.

    Args:
        keys: keys of the images (C, *S), all with equally many patches.
        patch_size: pixels per axis of a patch.
        prob: probability of shuffling.
        shuffled_key: new key that tells whether the patches were shuffled, a bool.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range, or when the new keys are not all different.
    """

    backend = ShufflePatches.backend
    transform: ShufflePatches

    def __init__(
        self,
        keys: KeysCollection,
        patch_size: int | Sequence[int],
        prob: float = 1.0,
        shuffled_key: str = "shuffled",
        allow_missing_keys: bool = False,
    ) -> None:
        new_keys = (*(f"{key}_order" for key in ensure_tuple(keys)), shuffled_key)
        super().__init__(keys, ShufflePatches(patch_size, prob), new_keys, allow_missing_keys)
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
            output |= {key: image, f"{key}_order": order, self.shuffled_key: self.transform.shuffled}
        return output


ShufflePatchesD = ShufflePatchesDict = ShufflePatchesd
