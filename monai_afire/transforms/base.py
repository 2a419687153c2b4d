# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bases of the transforms, which can repeat their last draw, and checks of what would give wrong images in silence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, Randomizable, RandomizableTransform
from monai.utils import TransformBackends
from torch import Tensor

Self = TypeVar("Self", bound="RandomArrayTransformd")
Number = TypeVar("Number", int, float)

ROUNDING = 1e-4  # how far images may leave [0, 1]: resampling and float16 do


class OccasionalTransform(RandomizableTransform):
    """Base of the random array transforms that act with a probability."""

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def draw_whether(self) -> None:
        """Draw whether to act. A probability of 1 takes no random number, so that it does not change later draws."""
        if self.prob < 1:
            super().randomize(None)


class ArrayTransformd(MapTransform):
    """
    Base of the dictionary transforms that apply one array transform, ``array``, to the entry of each key.

    Args:
        keys: keys of the entries.
        settings: of the array transform.
        allow_missing_keys: do not raise an error if a key is missing.
    """

    array: Callable[..., Any]
    backend = [TransformBackends.TORCH]  # noqa: RUF012

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = type(self).array(*settings, **named_settings)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Transform the entries of one item. The item itself does not change."""
        item = dict(data)
        for key in self.key_iterator(item):
            item[key] = self.transform(item[key])
        return item


class RandomArrayTransformd(Randomizable, ArrayTransformd):
    """
    Base of the dictionary transforms around a random array transform, whose one draw all keys share.

    The array transform has an argument ``randomize``, which repeats the last draw if False. It is seeded with this one.
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


def random_box(
    generator: np.random.RandomState, size: Sequence[int], sides: Sequence[int]
) -> tuple[slice, slice]:
    """A box of the given sides within an image of the given size, all places equally likely."""
    top, left = (generator.randint(n - side + 1) for n, side in zip(size, sides, strict=True))
    return slice(top, top + sides[0]), slice(left, left + sides[1])


def check_image_range(images: Tensor, batched: bool = False) -> None:
    """
    Refuse images ``(C, H, W)``, or batches of them, that are not floating-point in [0, 1], or lack the channel axis.

    The values are looked at on a CPU only: elsewhere that would wait for the device.
    """
    if images.ndim - batched != 3:
        shape = f"got shape {tuple(images.shape)}: add a missing channel with EnsureChannelFirst"
        raise ValueError(
            f"The image must be {'(B, C, H, W)' if batched else '(C, H, W)'}, {shape}."
        )
    remedy = "scale it before (ScaleIntensity) and normalize it after (NormalizeIntensity)"
    if not images.is_floating_point():
        raise ValueError(f"The image must be floats in [0, 1], got {images.dtype}: {remedy}.")
    if images.device.type == "cpu":
        low, high = (float(value) for value in torch.aminmax(images.detach()))
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # not for NaN, either
            raise ValueError(f"The image must be in [0, 1], got {low:g} to {high:g}: {remedy}.")


def check_range(
    name: str, values: Sequence[Number], largest: float = float("inf")
) -> tuple[Number, Number]:
    """Two positive numbers in ascending order, the second at most ``largest``."""
    low, high = values
    if not 0 < low <= high <= largest:
        limit = f"0 < low <= high <= {largest:g}"
        raise ValueError(f"{name} must be two numbers, {limit}, got {values}.")
    return low, high
