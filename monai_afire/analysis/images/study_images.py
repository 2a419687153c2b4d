# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The images that studies look at, with what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

__all__ = ["StudyImages", "names_or_numbers"]


@dataclass(frozen=True)
class StudyImages:
    """
    Images, and what is known about them; what is not known is None, and the studies that need it are left out.

    Args:
        image: ``(M, C, *S)`` in [0, 1], of the encoders' size.
        group: the disease set (or any other group) of each image, M names.
        landmarks: ``(M, P, n)`` in pixels, rows before columns; NaN where a landmark is not known.
        landmark_names: P names.
        masks: ``(M, O, *S)`` bool, one channel per organ.
        mask_names: O names.
        boxes: for each image ``(number, 4)`` boxes of lesions: row, column, height, width in pixels.
        box_kinds: for each image the kind of lesion of each of its boxes.

    Raises:
        ValueError: when something is not given for all M images, or has more or fewer names than channels.

    Example:
        >>> images = StudyImages(torch.rand(2, 1, 8, 8), group=["normal", "nodule"])
        >>> images.missing(["group", "masks"])
        ['masks']
    """

    image: torch.Tensor
    group: Sequence[str] | None = None
    landmarks: torch.Tensor | None = None
    landmark_names: Sequence[str] | None = None
    masks: torch.Tensor | None = None
    mask_names: Sequence[str] | None = None
    boxes: Sequence[torch.Tensor] | None = None
    box_kinds: Sequence[Sequence[str]] | None = None

    def __post_init__(self) -> None:
        for name in ("group", "landmarks", "masks", "boxes", "box_kinds"):
            value = getattr(self, name)
            if value is not None and len(value) != len(self.image):
                raise ValueError(
                    f"{len(value)} {name} for {len(self.image)} images: give one for each image, or None for all"
                )
        for number, kinds in enumerate(self.box_kinds or ()):
            if self.boxes is None or len(kinds) != len(self.boxes[number]):
                count = 0 if self.boxes is None else len(self.boxes[number])
                raise ValueError(f"image {number} has {count} boxes, but {len(kinds)} box_kinds: name the kind of each")
        for name in ("landmark", "mask"):
            value, names = getattr(self, "landmarks" if name == "landmark" else "masks"), getattr(self, f"{name}_names")
            if value is not None and names is not None and len(names) != value.shape[1]:
                raise ValueError(f"{len(names)} {name}_names for {value.shape[1]} channels: name each of them")

    def missing(self, needs: Sequence[str]) -> list[str]:
        """Those of the named fields that are not known."""
        known = {item.name for item in fields(self)}
        unknown = [name for name in needs if name not in known]
        if unknown:
            raise ValueError(f"images have no {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return [name for name in needs if getattr(self, name) is None]


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
