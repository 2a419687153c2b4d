# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Shuffled patches are the original ones in the order that is returned."""

from __future__ import annotations

import numpy as np
import torch

from monai_afire.transforms import RandPatchShuffle


def patch_at(image: torch.Tensor, place: int) -> torch.Tensor:
    """Patch of 4 x 2 pixels of an image with 3 patches per row."""
    row, column = divmod(place, 3)
    return image[:, row * 4 : row * 4 + 4, column * 2 : column * 2 + 2]


def test_order_names_the_original_place() -> None:
    image = torch.rand(2, 8, 6)
    transform = RandPatchShuffle((4, 2)).set_random_state(seed=1)
    seen = set()
    for _ in range(50):
        shuffled, order = transform(image)
        assert order.dtype == np.int64
        for n in range(6):
            assert torch.equal(patch_at(shuffled, n), patch_at(image, order[n]))
        seen.add(tuple(order))
    assert len(seen) > 40
