# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The neighbors' vote against loops and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from monai_afire.metrics import nearest_neighbors
from monai_afire.metrics.nearest_neighbors import knn_predict

NAN = math.nan


def random_features(
    seed: int, missing: float = 0.3
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (30, 4)).astype(float)
    labels[rng.random(labels.shape) < missing] = NAN
    train, test = rng.normal(size=(30, 5)), rng.normal(size=(11, 5))
    return torch.tensor(train), torch.tensor(labels), torch.tensor(test)


def naive(
    train: torch.Tensor,
    labels: torch.Tensor,
    features: torch.Tensor,
    count: int,
    temperature: float,
) -> np.ndarray:
    """The definition, image by image and label by label."""
    result = np.full((len(features), labels.shape[1]), NAN)
    for m, query in enumerate(features.tolist()):
        for k in range(labels.shape[1]):
            votes = []
            for reference, label in zip(train.tolist(), labels[:, k].tolist(), strict=True):
                if not math.isnan(label):
                    product = sum(a * b for a, b in zip(query, reference, strict=True))
                    votes.append((product / (math.hypot(*query) * math.hypot(*reference)), label))
            nearest = sorted(votes, reverse=True)[:count]
            weights = [math.exp(cosine / temperature) for cosine, _ in nearest]
            if weights:
                result[m, k] = sum(
                    w * label for w, (_, label) in zip(weights, nearest, strict=True)
                ) / sum(weights)
    return result


@pytest.mark.parametrize(("count", "temperature"), [(1, 0.07), (5, 1.0), (99, 0.07)])
def test_equals_a_loop(count: int, temperature: float) -> None:
    train, labels, features = random_features(0)
    expected = naive(train, labels, features, count, temperature)
    np.testing.assert_allclose(
        knn_predict(train, labels, features, count, temperature), expected, rtol=1e-9
    )


@pytest.mark.parametrize("largest", [1, 70])
def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    train, labels, features = random_features(0)
    expected = knn_predict(train, labels, features)
    monkeypatch.setattr(nearest_neighbors, "_LARGEST_BLOCK", largest)
    torch.testing.assert_close(
        knn_predict(train, labels, features), expected, rtol=1e-12, atol=0, equal_nan=True
    )


def test_label_known_nowhere_is_nan() -> None:
    train, labels, features = random_features(0, 0.0)
    labels[:, 2] = NAN
    found = knn_predict(train, labels, features)
    assert found[:, 2].isnan().all()
    assert found[:, [0, 1, 3]].isfinite().all()


@pytest.mark.parametrize(
    ("train", "labels", "message"), [(NAN, 0.0, "train_features"), (1.0, -1.0, "train_labels")]
)
def test_numbers_that_would_vote_wrongly_are_refused(
    train: float, labels: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        knn_predict(torch.full((2, 1), train), torch.full((2, 1), labels), torch.zeros(1, 1))
