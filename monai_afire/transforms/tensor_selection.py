# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What of an item goes into a batch."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from monai.transforms import Compose, EnsureTyped, SelectItemsd
from monai.utils import ensure_tuple

__all__ = ["select_tensors"]


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

    Raises:
        KeyError: when an item lacks a key, as it is applied.

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
