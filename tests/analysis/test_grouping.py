# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from monai_afire.analysis import grouping
from monai_afire.analysis.grouping.measures import (
    chance_purity,
    group_separation,
    neighbor_purity,
    silhouette,
    tsne_map,
)


def random_groups(seed: int, number: int = 60, groups: int = 4):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(groups, (number,), generator=generator).tolist()
    centers = torch.randn(groups, 6, generator=generator)
    return centers[labels] + torch.randn(number, 6, generator=generator), labels


def naive_purity(features, labels, k):
    points = features.double() / features.double().norm(dim=1, keepdim=True)
    shares = []
    for i in range(len(points)):
        order = sorted((-float(points[i] @ points[j]), j) for j in range(len(points)) if j != i)
        shares.append(np.mean([labels[j] == labels[i] for _, j in order[:k]]))
    return np.mean(shares)


@pytest.mark.parametrize("seed", range(5))
def test_silhouette_is_that_of_scikit_learn(seed):
    features, labels = random_groups(seed)
    labels[0] = 99  # alone in its group
    assert silhouette(features, labels) == pytest.approx(silhouette_score(features, labels, metric="cosine"), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("limit", [1, 10**9])
def test_purity_like_one_item_at_a_time(seed, k, limit, monkeypatch):
    monkeypatch.setattr(grouping, "_MAX_SIMILARITIES", limit)
    features, labels = random_groups(seed)
    assert neighbor_purity(features, labels, k) == pytest.approx(naive_purity(features, labels, k))


def test_more_neighbours_than_items_is_chance():
    features, labels = random_groups(0)
    assert neighbor_purity(features, labels, 1000) == pytest.approx(chance_purity(labels))


def test_features_without_meaning_are_at_chance():
    labels = ["a"] * 30 + ["b"] * 10 + ["c"]
    assert neighbor_purity(torch.ones(41, 3), labels, 3) == pytest.approx(chance_purity(labels))
    assert neighbor_purity(torch.zeros(41, 3), labels, 3) == pytest.approx(chance_purity(labels))
    noise = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    groups = (torch.arange(2000) % 4).tolist()
    assert neighbor_purity(noise, groups, 5) == pytest.approx(chance_purity(groups), abs=0.03)
    assert silhouette(noise, groups) == pytest.approx(0, abs=0.03)


def test_length_does_not_matter():
    features, labels = random_groups(1)
    scaled = features * torch.rand(len(features), 1).add(0.1)
    first, second = group_separation(features, labels), group_separation(scaled, labels)
    assert first == pytest.approx(second, abs=1e-6)


def test_unknown_items_are_left_out():
    features, labels = random_groups(2)
    known = group_separation(features, labels)
    nan = torch.full((3, 6), torch.nan)
    assert group_separation(torch.cat([nan, features]), [0, 7, 8, *labels]) == pytest.approx(known)


def test_degenerate():
    assert math.isnan(neighbor_purity(torch.rand(1, 3), ["a"]))
    assert math.isnan(chance_purity([]))
    one_group = group_separation(torch.rand(5, 3), ["a"] * 5)
    assert one_group["purity"] == one_group["chance_purity"] == 1
    assert math.isnan(one_group["silhouette"])
    alone = group_separation(torch.rand(5, 3), list("abcde"))
    assert alone["purity"] == alone["chance_purity"] == 0
    assert math.isnan(alone["silhouette"])
    nothing = group_separation(torch.full((2, 3), torch.nan), ["a", "b"])
    assert nothing["num_items"] == nothing["num_groups"] == 0
    with pytest.raises(ValueError, match="3 groups"):
        silhouette(torch.rand(2, 3), ["a", "b", "c"])
    with pytest.raises(ValueError, match="num_neighbors"):
        neighbor_purity(torch.rand(2, 3), ["a", "b"], 0)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 7])
def test_map_of_few_or_equal_features(number):
    for features in (torch.ones(number, 5), torch.rand(number, 5), torch.zeros(number, 1)):
        points = tsne_map(features)
        assert points.shape == (number, 2)
        assert np.isfinite(points).all()


def test_map_keeps_clear_groups_apart_and_repeats_itself():
    labels = np.arange(45) % 3
    features = torch.eye(3)[labels] + 0.01 * torch.rand(45, 3, generator=torch.Generator().manual_seed(0))
    points = tsne_map(features, seed=1)
    assert silhouette_score(points, labels) > 0.6
    np.testing.assert_array_equal(points, tsne_map(features, seed=1))
    with pytest.raises(ValueError, match="NaN"):
        tsne_map(torch.full((5, 2), torch.nan))
