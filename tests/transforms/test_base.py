# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Seeding and drawing of the dictionary transforms that are built on an array transform."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from monai.data import DataLoader, Dataset
from monai.data.utils import set_rnd
from monai.transforms import Compose, Randomizable, RandomizableTrait, Transform
from monai.utils import set_determinism

from monai_afire.transforms import (
    AnatPasted,
    CutPasted,
    DistortAppearanced,
    GridCropPaird,
    MultiCropd,
    ShufflePatchesd,
    SynthLesionMaskd,
)
from monai_afire.transforms.base import RandomArrayTransformd

MAKERS: dict[str, Callable[[], RandomArrayTransformd]] = {
    "GridCropPaird": lambda: GridCropPaird("image", grid=8, cell=4, crops=(4, 4)),
    "SynthLesionMaskd": lambda: SynthLesionMaskd("image"),
    "AnatPasted": lambda: AnatPasted("image"),
    "CutPasted": lambda: CutPasted("image"),
    "ShufflePatchesd": lambda: ShufflePatchesd("image", patch_size=4),
    "DistortAppearanced": lambda: DistortAppearanced("image"),
    "MultiCropd": lambda: MultiCropd("image", 16, 8),
}


class Noise(Randomizable, Transform):
    """Adds one random number, and counts its draws."""

    def __init__(self) -> None:
        self.number, self.draws = 0.0, 0

    def randomize(self, data: Any) -> None:
        self.number, self.draws = float(self.R.random_sample()), self.draws + 1

    def __call__(self, img: torch.Tensor, randomize: bool = True) -> torch.Tensor:
        if randomize:
            self.randomize(None)
        return img + self.number


class Noised(RandomArrayTransformd):
    def __init__(self, keys: Any, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, Noise(), allow_missing_keys)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        return {**data, **dict(self.transformed(data))}


def outputs(transform: Any, times: int = 3) -> list[dict[Any, Any]]:
    image = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0))
    return [dict(transform({"image": image})) for _ in range(times)]


def same(one: list[dict[Any, Any]], other: list[dict[Any, Any]]) -> bool:
    return all(np.array_equal(a[key], b[key]) for a, b in zip(one, other, strict=True) for key in a)


def test_keys_share_one_draw_and_input_stays() -> None:
    transform = Noised(["a", "b", "c"], allow_missing_keys=True)
    data: dict[Any, Any] = {"b": torch.zeros(2), "c": torch.ones(2), "d": 5}
    for calls in range(1, 4):
        result = transform(data)
        number = transform.transform.number
        assert transform.transform.draws == calls
        assert result["b"].tolist() == pytest.approx([number] * 2)
        assert result["c"].tolist() == pytest.approx([1 + number] * 2)
        assert (set(result), result["d"]) == ({"b", "c", "d"}, 5)
        assert data["b"].sum() == 0
    with pytest.raises(KeyError, match="`a` of transform `Noised` was missing"):
        Noised("a")(data)
    transform.randomize(None)
    assert transform.transform.draws == 4


@pytest.mark.parametrize("name", MAKERS)
def test_seed_and_state(name: str) -> None:
    make = MAKERS[name]
    transform = make()
    assert isinstance(transform, RandomizableTrait)
    assert transform.set_random_state(seed=4) is transform
    first = outputs(transform)
    assert same(first, outputs(make().set_random_state(seed=4)))
    assert not same(first, outputs(make().set_random_state(seed=5)))
    assert not same(first[:1], first[1:2])
    state = np.random.RandomState(4)
    assert same(first, outputs(make().set_random_state(state=state)))
    transform.set_random_state()
    assert not same(first, outputs(transform))


@pytest.mark.parametrize("name", MAKERS)
def test_seeding_from_outside_reaches_the_draws(name: str) -> None:
    make = MAKERS[name]
    first = outputs(Compose([make()]).set_random_state(seed=1))
    assert same(first, outputs(Compose([make()]).set_random_state(seed=1)))
    assert not same(first, outputs(Compose([make()]).set_random_state(seed=2)))
    # what a worker of MONAI's data loader does with its copy of the data set
    for data_set in (
        [Dataset([], make()) for _ in range(2)],
        [Dataset([], Compose([make()])) for _ in range(2)],
    ):
        for copy in data_set:
            set_rnd(copy, seed=8)
        first, second = (outputs(copy.transform) for copy in data_set)
        assert same(first, second)
        set_rnd(data_set[0], seed=9)
        assert not same(first, outputs(data_set[0].transform))


def load(num_workers: int) -> torch.Tensor:
    set_determinism(seed=7)
    try:
        data = [{"image": torch.full((1, 16, 16), 0.5)} for _ in range(6)]
        transform = Compose([ShufflePatchesd("image", 4, prob=0.5), DistortAppearanced("image")])
        loader = DataLoader(Dataset(data, transform), batch_size=2, num_workers=num_workers)
        return torch.cat([torch.as_tensor(batch["image"]) for batch in loader])
    finally:
        set_determinism(seed=None)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_data_loader(num_workers: int) -> None:
    images = load(num_workers)
    assert all(not torch.equal(images[i], images[j]) for i in range(6) for j in range(i))
    assert torch.equal(images, load(num_workers))
