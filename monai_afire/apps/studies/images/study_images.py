# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The images of a study with what is known about them, and samples of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

# of channels; every other field has one entry for each image
_NAMES = (
    "landmark_names",
    "mask_names",
)


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
        native: ``(M, C, *T)``, the same images in more pixels, of which patches and windows are cut; None cuts them out
            of ``image``.

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
    native: torch.Tensor | None = None

    def __post_init__(self) -> None:
        for name, value in self._of_each_image():
            if len(value) != len(self.image):
                raise ValueError(
                    f"{len(value)} {name} for {len(self.image)} images: give one for each, or None"
                )
        for number, kinds in enumerate(self.box_kinds or ()):
            if self.boxes is None or len(kinds) != len(self.boxes[number]):
                count = 0 if self.boxes is None else len(self.boxes[number])
                raise ValueError(
                    f"image {number} has {count} boxes, but {len(kinds)} box_kinds: name the kind of each"
                )
        named = {"landmark_names": self.landmarks, "mask_names": self.masks}
        for name, value in named.items():
            names = getattr(self, name)
            if value is not None and names is not None and len(names) != value.shape[1]:
                raise ValueError(
                    f"{len(names)} {name} for {value.shape[1]} channels: name each of them"
                )

    @property
    def detailed(self) -> torch.Tensor:
        """The images in as many pixels as there are."""
        return self.image if self.native is None else self.native

    def detailed_landmarks(self) -> torch.Tensor:
        """
        The landmarks in pixels of :attr:`detailed`.

        Returns:
            ``(M, P, n)``; NaN where a landmark is not known.

        Raises:
            ValueError: when there are no landmarks.

        Example:
            >>> small, large = torch.rand(1, 1, 4, 4), torch.rand(1, 1, 8, 8)
            >>> images = StudyImages(small, landmarks=torch.zeros(1, 1, 2), native=large)
            >>> images.detailed_landmarks().tolist()
            [[[0.5, 0.5]]]
        """
        if self.landmarks is None:
            raise ValueError("the images have no landmarks")
        sizes = zip(self.detailed.shape[2:], self.image.shape[2:], strict=True)
        # the center of the first pixel is 0, its edge -0.5
        return (self.landmarks + 0.5) * torch.tensor([new / old for new, old in sizes]) - 0.5

    def select(self, rows: Sequence[int]) -> StudyImages:
        """
        Some of the images, with all that is known of them.

        Args:
            rows: their indices, in any order.

        Returns:
            The images in the order of ``rows``.

        Example:
            >>> images = StudyImages(torch.rand(3, 1, 8, 8), group=["a", "b", "c"])
            >>> images.select([2, 0]).group
            ['c', 'a']
        """
        index = [int(row) for row in rows]
        selected: dict[str, Any] = {}
        for name, value in self._of_each_image():
            is_tensor = isinstance(value, torch.Tensor)
            selected[name] = value[index] if is_tensor else [value[row] for row in index]
        return replace(self, **selected)

    def sample(self, max_images: int, seed: int = 0) -> StudyImages:
        """
        A random sample of the images, in their order.

        Args:
            max_images: how many to keep; all, where there are not more.
            seed: of the sampling.

        Returns:
            The sampled images.

        Raises:
            ValueError: for less than one image.

        Example:
            >>> images = StudyImages(torch.rand(5, 1, 8, 8), group=list("abcde"))
            >>> len(images.sample(2).image), len(images.sample(2).group)
            (2, 2)
        """
        if max_images < 1:
            raise ValueError(f"max_images must be at least 1, got {max_images}")
        number = len(self.image)
        if number <= max_images:
            return self
        order = torch.randperm(number, generator=torch.Generator().manual_seed(seed))
        return self.select(order[:max_images].sort().values.tolist())

    def missing(self, needs: Sequence[str]) -> list[str]:
        """Those of the named fields that are not known."""
        known = {item.name for item in fields(self)}
        unknown = [name for name in needs if name not in known]
        if unknown:
            raise ValueError(
                f"images have no {', '.join(unknown)}; known: {', '.join(sorted(known))}"
            )
        return [name for name in needs if getattr(self, name) is None]

    def _of_each_image(self) -> list[tuple[str, Any]]:
        """The known fields that have an entry for each image."""
        values = [
            (item.name, getattr(self, item.name))
            for item in fields(self)
            if item.name not in _NAMES
        ]
        return [(name, value) for name, value in values if value is not None]


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
    return (
        [str(index + 1) for index in range(number)]
        if names is None
        else [str(name) for name in names]
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
        return (
            np.linspace(0, num_images, min(int(reference), num_images), endpoint=False)
            .astype(int)
            .tolist()
        )
    indices = [int(index) for index in reference]
    if (
        not indices
        or min(indices) < 0
        or max(indices) >= num_images
        or len(set(indices)) < len(indices)
    ):
        raise ValueError(
            f"reference must be different indices from 0 to {num_images - 1}, or a count, got {reference}"
        )
    return indices
