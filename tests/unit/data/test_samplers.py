# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The random sampler of distributed training."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monai_afire.data.samplers import DistributedRandomSampler


def shares(
    size: int, num_samples: int | None, ranks: int, seed: int = 0, epoch: int = 1
) -> list[list[int]]:
    samplers = [
        DistributedRandomSampler(range(size), num_samples, seed, ranks, rank)
        for rank in range(ranks)
    ]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    drawn = [list(sampler) for sampler in samplers]
    assert [len(sampler) for sampler in samplers] == [len(indices) for indices in drawn]
    return drawn


@given(size=st.integers(1, 20), num_samples=st.integers(1, 60), ranks=st.integers(1, 5))
def test_every_image_is_drawn_equally_often_give_or_take_one(
    size: int, num_samples: int, ranks: int
) -> None:
    drawn = shares(size, num_samples, ranks)
    assert len({len(indices) for indices in drawn}) == 1, "all ranks take as many steps"
    counts = Counter(index for indices in drawn for index in indices)
    total = sum(counts.values())
    assert num_samples <= total < num_samples + ranks
    assert {counts[index] for index in range(size)} <= {total // size, -(-total // size)}


def test_order_depends_on_seed_and_epoch() -> None:
    first = shares(30, None, 2)
    assert sorted(first[0] + first[1]) == list(range(30))
    assert shares(30, None, 2) == first
    assert shares(30, None, 2, epoch=2) != first
    assert shares(30, None, 2, seed=5) != first


@pytest.mark.parametrize(("size", "length"), [(5, 12), (100, 50)])
def test_a_small_data_set_fills_so_many_batches_of_each_process(size: int, length: int) -> None:
    least = {"min_batches": 3, "batch_size": 4}
    samplers = [
        DistributedRandomSampler(range(size), num_replicas=2, rank=rank, **least) for rank in (0, 1)
    ]
    assert [len(list(sampler)) for sampler in samplers] == [length, length]
    assert {index for sampler in samplers for index in sampler} == set(range(size))
