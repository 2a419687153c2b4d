# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loaders of a training: full batches in a new order, and others with the settings of a loader."""

from __future__ import annotations

import pytest
from monai.data import DataLoader, Dataset
from monai.transforms import Compose, Lambdad

from monai_afire.data import TrainingLoader, loader_like


def numbers(count: int) -> Dataset:
    return Dataset([{"image": number} for number in range(count)])


@pytest.mark.parametrize(
    ("images", "batch_size", "min_batches", "sizes"),
    [
        (5, 2, 0, [2, 2]),
        (4, 2, 0, [2, 2]),
        (3, 8, 0, [3]),  # the only batch is kept
        (3, 2, 4, [2, 2, 2, 2]),
    ],
)
def test_batches_are_full_and_none_is_missing(
    images: int, batch_size: int, min_batches: int, sizes: list[int]
) -> None:
    loader = TrainingLoader(numbers(images), batch_size, min_batches=min_batches)
    assert [len(batch["image"]) for batch in loader] == sizes


def test_each_image_comes_once_an_epoch_in_another_order() -> None:
    loader = TrainingLoader(numbers(64), 8)
    orders = [[int(n) for batch in loader for n in batch["image"]] for _ in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(64))
    assert orders[0] != orders[1]


def test_other_images_are_loaded_alike() -> None:
    transform = Compose([Lambdad("image", lambda value: 10 * value)])
    loader = DataLoader(Dataset([{"image": 1}], transform), batch_size=2)
    other = loader_like(loader, [{"image": number} for number in (3, 1, 2)])
    assert [batch["image"].tolist() for batch in other] == [[30, 10], [20]]
