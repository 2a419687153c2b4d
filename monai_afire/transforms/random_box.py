# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A box at a random place of an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def random_box(
    generator: np.random.RandomState, size: Sequence[int], sides: Sequence[int]
) -> tuple[slice, ...]:
    """A box of the given sides within an image of the given size, all places equally likely."""
    starts = [generator.randint(n - side + 1) for n, side in zip(size, sides, strict=True)]
    return tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))
