# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which of the images are the known ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["reference_indices"]


def reference_indices(reference: Sequence[int] | int, num_images: int) -> list[int]:
    """
    The images that serve as references.

    Args:
        reference: different indices, or how many to take, evenly spaced over all.
        num_images: how many there are.

    Returns:
        Indices.

    Raises:
        ValueError: for an index that does not exist or occurs twice, or none.

    Example:
        >>> reference_indices(2, 10)
        [0, 5]
    """
    if isinstance(reference, (int, np.integer)):
        if reference < 1:
            raise ValueError(f"at least one reference image is needed, got reference={reference}")
        return np.linspace(0, num_images, min(int(reference), num_images), endpoint=False).astype(int).tolist()
    indices = [int(index) for index in reference]
    if not indices or min(indices) < 0 or max(indices) >= num_images or len(set(indices)) < len(indices):
        raise ValueError(f"reference must be different indices from 0 to {num_images - 1}, or a count, got {reference}")
    return indices
