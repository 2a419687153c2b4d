# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Whole images at the size of a network's input, and what of an item goes into a batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from monai.config import KeysCollection
from monai.transforms import Compose, EnsureTyped, Resized, SelectItemsd
from monai.utils import ensure_tuple, ensure_tuple_rep

from monai_afire.transforms.radiograph_files import warn_about
from monai_afire.utils.text import image_name


def fit_images(
    keys: KeysCollection,
    size: int | Sequence[int],
    mode: str | Sequence[str] = "area",
    allow_missing_keys: bool = False,
) -> Resized:
    """
    MONAI's ``Resized`` for pictures, whose size may be one number for both sides.

    Masks, which have the mode "nearest-exact", that become empty give a warning: their structures are too thin.

    Args:
        keys: keys of images and masks ``(C, H, W)``.
        size: rows and columns in pixels, or one number for both.
        mode: "area" for images and "nearest-exact" for masks, one for all keys or one for each. ("nearest" shifts masks
            by half a pixel.)
        allow_missing_keys: do not raise an error if a key is missing.

    Example:
        >>> import torch
        >>> fit_images("image", 6)({"image": torch.rand(1, 8, 12)})["image"].shape
        torch.Size([1, 6, 6])
    """
    settings: Any = {"mode": mode, "allow_missing_keys": allow_missing_keys}
    return _CountingResized(keys, ensure_tuple_rep(size, 2), anti_aliasing=False, **settings)


class _CountingResized(Resized):
    """Names masks whose structures are lost."""

    def __call__(
        self, data: Mapping[Hashable, Any], lazy: bool | None = None
    ) -> dict[Hashable, Any]:
        resized = super().__call__(data, lazy)
        for key, mode in self.key_iterator(data, self.mode):
            if mode == "nearest-exact" and (lost := _lost_channels(data[key], resized[key])):
                size = " x ".join(map(str, resized[key].shape[1:]))
                found = f"channels {lost} of {key!r} hold structures too thin for {size} pixels, which are lost"
                warn_about(image_name(data, key), found)
        return resized


def _lost_channels(before: torch.Tensor, after: torch.Tensor) -> list[int]:
    """Channels ``(C, H, W)`` that had a structure and have none."""
    had, has = (torch.as_tensor(mask).flatten(1).any(1) for mask in (before, after))
    return (had & ~has).nonzero().flatten().tolist()


def input_shape(channels: int, size: int | Sequence[int]) -> list[int]:
    """
    Shape of one image as a network takes it; ``size`` is rows and columns in pixels, or one number for both.

    Example:
        >>> input_shape(1, 96)
        [1, 96, 96]
    """
    return [channels, *ensure_tuple_rep(size, 2)]


def select_tensors(
    keys: Hashable | Sequence[Hashable],
    others: Sequence[Hashable] = (),
    allow_missing_keys: bool = False,
) -> Compose:
    """
    MONAI's ``SelectItemsd`` and ``EnsureTyped``: plain tensors, and a few entries that stay as they are.

    Args:
        keys: entries that become tensors without metadata.
        others: entries that are kept, such as "file".
        allow_missing_keys: do not raise an error if a key is missing.

    Example:
        >>> item = {"image": [0.0, 1.0], "file": "chest.png", "note": "of no use"}
        >>> select_tensors(["image"], others=["file"])(item)
        {'image': tensor([0., 1.]), 'file': 'chest.png'}
    """
    kept = [*ensure_tuple(keys), *others]
    return Compose(
        [
            SelectItemsd(kept, allow_missing_keys=allow_missing_keys),
            EnsureTyped(keys, track_meta=False, allow_missing_keys=allow_missing_keys),
        ]
    )
