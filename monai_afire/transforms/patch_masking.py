# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Random choice of the patches that a masked autoencoder sees."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from monai.config.type_definitions import NdarrayOrTensor
from monai.transforms import Randomizable, Transform
from monai.utils import TransformBackends, ensure_tuple_rep

from monai_afire.transforms.base import RandomArrayTransformd

# 1 - 0.9 is a little less than 0.1 in binary: without it a hundred patches would keep nine
_ROUNDING = 1e-6


class RandVisiblePatches(Randomizable, Transform):
    r"""
    Draw the patches of an image that stay visible to a masked autoencoder (He et al., CVPR 2022).

    Of the N patches

    .. math:: K = \lfloor N (1 - r) \rfloor

    stay visible, r the masking ratio, in every image the same number; every subset of K is equally likely. The image
    itself is not touched: the network leaves the others out (:class:`monai_afire.networks.MAE`).

    Args:
        patch_size: pixels per axis of a patch: one number, or one for each axis.
        mask_ratio: r in (0, 1), 0.75 in the paper, 0.9 for radiographs (Xiao et al., WACV 2023).

    Example:
        >>> transform = RandVisiblePatches(patch_size=16).set_random_state(seed=0)
        >>> visible = transform(np.zeros((1, 64, 64)))
        >>> visible.shape, visible.dtype, bool((np.diff(visible) > 0).all())
        ((4,), dtype('int64'), True)
    """

    backend = [TransformBackends.TORCH, TransformBackends.NUMPY]  # noqa: RUF012
    visible: np.ndarray  # of the last draw

    def __init__(self, patch_size: int | Sequence[int], mask_ratio: float = 0.75) -> None:
        self.patch_size = ensure_tuple_rep(patch_size, 2)
        self.mask_ratio = mask_ratio

    def randomize(self, num_patches: int) -> None:
        """Draw the visible ones of ``num_patches`` patches."""
        kept = math.floor(num_patches * (1 - self.mask_ratio) + _ROUNDING)
        if not 0 < kept < num_patches:
            found = f"mask_ratio {self.mask_ratio} leaves {kept} of {num_patches} patches visible"
            raise ValueError(f"{found}: choose another ratio, smaller patches or larger images.")
        self.visible = np.sort(self.R.permutation(num_patches)[:kept]).astype(np.int64)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> np.ndarray:
        """Places ``(K,)`` int64, rising, for an image whose sides are multiples of the patch size."""
        if randomize:
            sides = zip(img.shape[1:], self.patch_size, strict=True)
            self.randomize(math.prod(side // patch for side, patch in sides))
        return self.visible.copy()


class RandVisiblePatchesd(RandomArrayTransformd):
    """
    Dictionary version of :class:`RandVisiblePatches`: adds the places (K,) of the visible patches, "visible".

    Its arguments follow the key of the image ``(C, H, W)``; several, equally large, share the draw.
    """

    array = RandVisiblePatches

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Add the places of the visible patches to a copy of the data."""
        output = dict(data)
        for _, visible in self.transformed(data):
            output["visible"] = visible
        return output


RandVisiblePatchesD = RandVisiblePatchesDict = RandVisiblePatchesd
