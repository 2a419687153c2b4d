# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Random choice of the patches that a masked autoencoder sees."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from monai.config import KeysCollection
from monai.config.type_definitions import NdarrayOrTensor
from monai.transforms import Randomizable, Transform
from monai.utils import TransformBackends

from monai_afire.transforms.argument_checks import check_positive, patches_per_axis
from monai_afire.transforms.base import RandomArrayTransformd, no_last_draw

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

    Raises:
        ValueError: on settings out of range.

    Example:
        >>> transform = RandVisiblePatches(patch_size=16).set_random_state(seed=0)
        >>> visible = transform(np.zeros((1, 64, 64)))
        >>> visible.shape, visible.dtype, bool((np.diff(visible) > 0).all())
        ((4,), dtype('int64'), True)
    """

    backend = [TransformBackends.TORCH, TransformBackends.NUMPY]  # noqa: RUF012

    def __init__(self, patch_size: int | Sequence[int], mask_ratio: float = 0.75) -> None:
        self.patch_size = check_positive("patch_size", patch_size)
        self.mask_ratio = float(mask_ratio)
        if not 0 < self.mask_ratio < 1:
            raise ValueError(f"mask_ratio must be above 0 and below 1, got {mask_ratio}.")
        self.visible: np.ndarray | None = None
        self.num_patches = 0

    def randomize(self, num_patches: int) -> None:
        """
        Draw the visible patches.

        Args:
            num_patches: number N of patches.

        Raises:
            ValueError: when none of so few patches would be visible, or none hidden.
        """
        kept = math.floor(num_patches * (1 - self.mask_ratio) + _ROUNDING)
        if not 0 < kept < num_patches:
            found = (
                f"With mask_ratio {self.mask_ratio}, {kept} of {num_patches} patches are visible"
            )
            raise ValueError(
                f"{found}: choose another ratio, smaller patches or larger images, to show and hide some."
            )
        self.num_patches = num_patches
        self.visible = np.sort(self.R.permutation(num_patches)[:kept]).astype(np.int64)

    def __call__(self, img: NdarrayOrTensor, randomize: bool = True) -> np.ndarray:
        """
        Draw for an image.

        Args:
            img: image (C, *S); each side a multiple of the patch size.
            randomize: draw anew; False repeats the last draw.

        Returns:
            (K,) int64, the row-major places of the visible patches, rising.

        Raises:
            ValueError: when the image cannot be divided into whole patches, or the ratio does not fit their number.
            RuntimeError: when ``randomize`` is False and nothing has been drawn.
        """
        num_patches = math.prod(patches_per_axis(img.shape[1:], self.patch_size))
        if randomize:
            self.randomize(num_patches)
        if self.visible is None or self.num_patches != num_patches:
            raise no_last_draw(self, f"an image of {num_patches} patches")
        return self.visible.copy()


class RandVisiblePatchesd(RandomArrayTransformd):
    """
    Dictionary-based wrapper of ``RandVisiblePatches``: adds the places of the visible patches (K,) as a new key.

    Args:
        keys: key of the image (C, *S); several, equally large, share the draw.
        settings: as for ``RandVisiblePatches``.
        visible_key: the new key.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: on settings out of range, or when the new key is one of the keys.

    Example:
        >>> transform = RandVisiblePatchesd("image", patch_size=8, mask_ratio=0.75).set_random_state(seed=0)
        >>> transform({"image": np.zeros((1, 16, 16))})["visible"].shape
        (1,)
    """

    array_class = RandVisiblePatches

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        visible_key: str = "visible",
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        super().__init__(
            keys,
            *settings,
            new_keys=(visible_key,),
            allow_missing_keys=allow_missing_keys,
            **named_settings,
        )
        self.visible_key = visible_key

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """
        Add the places of the visible patches to a copy of the data.

        Args:
            data: dictionary with the images (C, *S).

        Returns:
            The data, with the new entry (K,), int64.
        """
        result = dict(data)
        for _, visible in self.transformed(data):
            result[self.visible_key] = visible
        return result


RandVisiblePatchesD = RandVisiblePatchesDict = RandVisiblePatchesd
