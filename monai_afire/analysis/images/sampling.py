# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which of the images: some of many, and those that serve as references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from monai_afire.analysis.images.study_images import StudyImages

__all__ = ["sample_images", "reference_indices"]


def sample_images(images: StudyImages, max_images: int, seed: int = 0) -> StudyImages:
    """
    A seeded choice of the images, in their order, with all that is known of them.

    Args:
        images: of which to choose.
        max_images: how many to keep; all, where there are not more.
        seed: of the choice.

    Returns:
        The images of the choice.

    Raises:
        ValueError: for less than one image.

    Example:
        >>> images = StudyImages(torch.arange(5.0).reshape(5, 1, 1, 1), group=list("abcde"))
        >>> chosen = sample_images(images, 2)
        >>> len(chosen.image), len(chosen.group)
        (2, 2)
    """
    if max_images < 1:
        raise ValueError(f"max_images must be at least 1, got {max_images}")
    number = len(images.image)
    if number <= max_images:
        return images
    index = torch.randperm(number, generator=torch.Generator().manual_seed(seed))[:max_images].sort().values
    rows = index.tolist()
    return replace(
        images,
        image=images.image[rows],
        group=None if images.group is None else [images.group[row] for row in rows],
        landmarks=None if images.landmarks is None else images.landmarks[rows],
        masks=None if images.masks is None else images.masks[rows],
        boxes=None if images.boxes is None else [images.boxes[row] for row in rows],
    )


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
