# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A box at a random place of an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def random_box(
    generator: np.random.RandomState, size: Sequence[int], sides: Sequence[int]
) -> tuple[slice, ...]:
    """
    Draw the place of a box within an image, all places equally likely.

    Args:
        generator: of the random numbers, one for each axis.
        size: of the image, in pixels.
        sides: of the box, at most those of the image.

    Returns:
        The part of each axis.

    Example:
        >>> random_box(np.random.RandomState(0), (8, 8), (8, 2))
        (slice(0, 8, None), slice(4, 6, None))
    """
    starts = [generator.randint(n - side + 1) for n, side in zip(size, sides, strict=True)]
    return tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))
