# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fewer images than there are, and names for what has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from monai_afire.analysis.study import StudyImages

__all__ = ["choose_images", "names_or_numbers"]


def choose_images(images: StudyImages, max_images: int, seed: int = 0) -> StudyImages:
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
        >>> chosen = choose_images(images, 2)
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


def names_or_numbers(names: Sequence[str] | None, number: int) -> list[str]:
    """
    The names, or the numbers from 1 where there are none.

    Args:
        names: as many as ``number``, or None.
        number: how many.

    Returns:
        A name for each.

    Example:
        >>> names_or_numbers(None, 2)
        ['1', '2']
    """
    return [str(index + 1) for index in range(number)] if names is None else [str(name) for name in names]
