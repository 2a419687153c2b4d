# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pytest
import torch
from apps.studies.stub_encoders import PositionEncoder
from sklearn.metrics import silhouette_score

from monai_afire.apps.studies import (
    StudyImages,
    image_map_study,
    landmark_map_study,
    position_map_study,
)
from monai_afire.apps.studies.grouping import (
    group_separation,
)
from monai_afire.apps.studies.study import NothingToCompareError


def random_groups(seed: int, number: int = 60, groups: int = 4) -> tuple[torch.Tensor, list[int]]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(groups, (number,), generator=generator).tolist()
    centers = torch.randn(groups, 6, generator=generator)
    return centers[labels] + torch.randn(number, 6, generator=generator), labels


def naive_purity(features: torch.Tensor, labels: Sequence[Hashable], k: int) -> float:
    points = features.double() / features.double().norm(dim=1, keepdim=True)
    shares = []
    for i in range(len(points)):
        order = sorted((-float(points[i] @ points[j]), j) for j in range(len(points)) if j != i)
        shares.append(np.mean([labels[j] == labels[i] for _, j in order[:k]]))
    return np.mean(shares)


@pytest.mark.parametrize("k", [1, 5])
def test_measures_like_one_item_at_a_time_and_scikit_learn(k: int) -> None:
    features, labels = random_groups(0)
    labels[0] = 99  # alone in its group
    unknown = torch.cat([torch.full((1, 6), torch.nan), features])
    found = group_separation(unknown, [7, *labels], k)
    assert found["purity"] == pytest.approx(naive_purity(features, labels, k))
    expected = silhouette_score(features.double(), labels, metric="cosine")
    assert found["silhouette"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_equal_features_are_at_chance(value: float) -> None:
    labels = ["a"] * 30 + ["b"] * 10 + ["c"]
    features = torch.full((41, 3), value) * (1 + 1e-7 * torch.arange(41)[:, None])  # and rounding
    found = group_separation(features, labels, 3)
    assert found["purity"] == pytest.approx((30 * 29 + 10 * 9) / (41 * 40))
    assert found["chance_purity"] == pytest.approx(found["purity"])
    assert found["silhouette"] == 0


def study_images(number: int, **known: object) -> StudyImages:
    generator = torch.Generator().manual_seed(0)
    return StudyImages(torch.rand(number, 1, 32, 32, generator=generator), **known)  # type: ignore[arg-type]


def test_maps_of_an_encoder_that_knows_positions_alone() -> None:
    encoders = {"positions": PositionEncoder((32, 32), (8, 8))}
    table = position_map_study(encoders, study_images(6)).table
    assert table.loc["positions", "purity"] == 1
    assert table.loc["positions", "silhouette"] == pytest.approx(1, abs=1e-6)
    assert table.loc["raw pixels", "purity"] < 0.5
    landmarks = 6 + 20 * torch.rand(40, 3, 2, generator=torch.Generator().manual_seed(0))
    windows = landmark_map_study(encoders, study_images(40, landmarks=landmarks)).table
    assert windows.loc["positions", "purity"] == pytest.approx(1 / 3, abs=0.1)


def test_a_single_group_is_nothing_to_compare() -> None:
    encoders = {"positions": PositionEncoder((32, 32), (8, 8))}
    with pytest.raises(NothingToCompareError, match="group"):
        image_map_study(encoders, study_images(6, group=["normal"] * 6))
    unknown = torch.full((6, 2, 2), torch.nan)
    with pytest.raises(NothingToCompareError, match="group"):
        landmark_map_study(encoders, study_images(6, landmarks=unknown))
