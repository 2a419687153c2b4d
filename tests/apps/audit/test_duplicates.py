# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Near duplicates against all correlations, and the memory of very many."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.apps.audit import near_duplicates


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Pictures that have much in common, as radiographs do."""
    random = np.random.default_rng(seed)
    smooth = np.repeat(np.repeat(random.random((1 + count, 8, 8)), 4, 1), 4, 2)
    return 0.7 * smooth[:1] + 0.3 * smooth[1:] + 0.02 * random.random((count, 32, 32))


@pytest.mark.parametrize("count", [3, 400])
def test_agrees_with_all_pairs(count: int) -> None:
    images = pictures(count)
    noise = np.random.default_rng(1).normal(0, 0.004, (count // 3, 32, 32))
    images = np.concatenate([images, 0.8 * images[: count // 3] + 0.1 + noise])
    correlations = np.corrcoef(images.reshape(len(images), -1))
    expected = set(zip(*np.nonzero(np.triu(correlations, 1) >= 0.99), strict=True))
    assert {pair[:2] for pair in near_duplicates(images, 0.99)} == {
        tuple(map(int, pair)) for pair in expected
    }
    assert len(expected) == count // 3


def test_many_copies_of_one_picture_are_joined_to_it() -> None:
    pairs = near_duplicates(np.repeat(pictures(1), 300, 0), 0.99)
    linked = {0}
    for first, second, _ in pairs:
        if first in linked:
            linked.add(second)
    assert linked == set(range(300))
