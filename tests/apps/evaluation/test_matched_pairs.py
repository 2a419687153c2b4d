# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Matched pairs against the best of all matchings and cases by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monai_afire.apps.evaluation import matched_pairs


def best_matching(
    labels: np.ndarray, brightness: np.ndarray, groups: np.ndarray, caliper: float
) -> tuple[int, float]:
    """Number of pairs and total difference of the best matching, by trying all."""

    def search(rest: list[int], free: frozenset[int]) -> tuple[int, float]:
        if not rest:
            return 0, 0.0
        options = [search(rest[1:], free)]
        for j in free:
            difference = abs(brightness[rest[0]] - brightness[j])
            if groups[j] == groups[rest[0]] and difference <= caliper:
                count, total = search(rest[1:], free - {j})
                options.append((count + 1, total + difference))
        return min(options, key=lambda option: (-option[0], option[1]))

    return search(
        np.flatnonzero(labels == 1).tolist(), frozenset(np.flatnonzero(labels == 0).tolist())
    )


@pytest.mark.parametrize("seed", range(6))
def test_matching_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, brightness = rng.integers(0, 2, 10), rng.random(10)
    groups, caliper = rng.choice(["PA", "AP"], 10), float(rng.choice([0.05, 0.2, 0.6]))
    pairs = matched_pairs(labels, brightness, groups, caliper)
    assert pairs.shape[1] == 2
    assert (labels[pairs[:, 0]] == 1).all()
    assert (labels[pairs[:, 1]] == 0).all()
    assert np.unique(pairs).size == pairs.size
    assert (groups[pairs[:, 0]] == groups[pairs[:, 1]]).all()
    differences = np.abs(brightness[pairs[:, 0]] - brightness[pairs[:, 1]])
    assert (differences <= caliper).all()
    count, total = best_matching(labels, brightness, groups, caliper)
    assert len(pairs) == count
    assert differences.sum() == pytest.approx(total, abs=1e-12)


def test_matching_by_hand() -> None:
    # greedily 0 would take 2 (nearest) and leave 1 alone
    pairs = matched_pairs([1, 1, 0, 0], [0.5, 0.7, 0.55, 0.35], [""] * 4, caliper=0.2)
    assert pairs.tolist() == [[0, 3], [1, 2]]
    assert matched_pairs([1, 0], [0.5, 0.5], ["PA", "AP"], caliper=0.1).shape == (0, 2)
    assert matched_pairs([1, 0], [0.1, 0.9], ["", ""], caliper=math.inf).tolist() == [[0, 1]]
    assert matched_pairs(
        [1, 0, 0], [0.5, 0.4, 0.5], [("a", 1), ("b", 2), ("a", 1)], caliper=0
    ).tolist() == [[0, 2]]
    assert matched_pairs([1, 1], [0.5, 0.5], ["", ""], caliper=0.1).shape == (0, 2)
