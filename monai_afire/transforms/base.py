# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bases of the transforms: random array transforms, and dictionary transforms around one array transform."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from monai.config import KeysCollection
from monai.transforms import MapTransform, Randomizable, RandomizableTransform
from monai.utils import TransformBackends

Self = TypeVar("Self", bound="RandomArrayTransformd")


class OccasionalTransform(RandomizableTransform):
    """Base of the random array transforms that act with a probability, and can repeat their last draw."""

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def draw_whether(self) -> None:
        """Draw whether to act. A probability of 1 takes no random number, so that it does not change later draws."""
        if self.prob < 1:
            super().randomize(None)


class ArrayTransformd(MapTransform):
    """
    Base of the dictionary transforms that apply one array transform to the entry of each key.

    Args:
        keys: keys of the entries.
        transform: the array transform.
        allow_missing_keys: do not raise an error if a key is missing.
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012

    def __init__(
        self, keys: KeysCollection, transform: Any, allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = transform

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Transform the entries of one item. The item itself does not change."""
        item = dict(data)
        for key in self.key_iterator(item):
            item[key] = self.transform(item[key])
        return item


class RandomArrayTransformd(Randomizable, ArrayTransformd):
    """
    Base of the dictionary transforms around one random array transform, whose one draw all keys share.

    The array transform makes the draws and has an argument ``randomize``, which repeats the last draw if False. MONAI's
    ``Compose`` and ``DataLoader`` seed this object, which seeds the array transform.
    """

    def set_random_state(
        self: Self, seed: int | None = None, state: np.random.RandomState | None = None
    ) -> Self:
        """Seed the array transform."""
        super().set_random_state(seed, state)
        self.transform.set_random_state(seed, state)
        return self

    def randomize(self, data: Any) -> None:
        """Make the random draws that all keys share."""
        self.transform.randomize(data)

    def transformed(self, data: Mapping[Hashable, Any]) -> Iterator[tuple[Hashable, Any]]:
        """Each key, and what the array transform returns for its image; all of them have one new draw."""
        drawn = False
        for key in self.key_iterator(dict(data)):
            yield key, self.transform(data[key], randomize=not drawn)
            drawn = True
