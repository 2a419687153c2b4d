# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The neighbors' vote against loops and scikit-learn."""

from __future__ import annotations

import math
from typing import Any

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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("count", "temperature"), [(1, 0.07), (5, 0.07), (5, 1.0), (20, 0.2), (99, 0.07)]
)
def test_equals_a_loop(seed: int, count: int, temperature: float) -> None:
    train, labels, features = random_features(seed)
    expected = naive(train, labels, features, count, temperature)
    np.testing.assert_allclose(
        knn_predict(train, labels, features, count, temperature), expected, rtol=1e-9
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_equals_scikit_learn(seed: int, missing: float) -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")
    train, labels, features = random_features(seed, missing)
    found = knn_predict(train, labels, features, 7, 0.1)
    for k in range(labels.shape[1]):
        known = ~labels[:, k].isnan()
        classifier = neighbors.KNeighborsClassifier(
            7,
            metric="cosine",
            algorithm="brute",
            weights=lambda distance: np.exp((1 - distance) / 0.1),
        )
        classifier.fit(train[known].numpy(), labels[known, k].numpy())
        np.testing.assert_allclose(
            found[:, k], classifier.predict_proba(features.numpy())[:, 1], rtol=1e-9
        )


@pytest.mark.parametrize("largest", [1, 30, 70, 10**6])
def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    train, labels, features = random_features(0)
    expected = knn_predict(train, labels, features)
    monkeypatch.setattr(nearest_neighbors, "_LARGEST_BLOCK", largest)
    torch.testing.assert_close(
        knn_predict(train, labels, features), expected, rtol=1e-12, atol=0, equal_nan=True
    )


def test_only_directions_count() -> None:
    train, labels, features = random_features(1)
    scales = torch.rand(30, 1, dtype=train.dtype) + 0.1
    expected = knn_predict(train, labels, features)
    torch.testing.assert_close(
        knn_predict(train * scales, labels, features * 50), expected, equal_nan=True
    )


def test_columns_vote_apart() -> None:
    train, labels, features = random_features(2)
    together = knn_predict(train, labels, features)
    for k in range(labels.shape[1]):
        torch.testing.assert_close(
            together[:, k], knn_predict(train, labels[:, [k]], features)[:, 0]
        )


def test_label_known_nowhere_is_nan() -> None:
    train, labels, features = random_features(0, 0.0)
    labels[:, 2] = NAN
    found = knn_predict(train, labels, features)
    assert found[:, 2].isnan().all()
    assert found[:, [0, 1, 3]].isfinite().all()


def test_small_temperature_is_the_nearest_neighbor() -> None:
    train, labels, features = random_features(0, 0.0)
    train, features = train.float(), features.float()
    found = knn_predict(train, labels, features, 20, temperature=1e-4)  # exp(1 / 1e-4) overflows
    torch.testing.assert_close(found, knn_predict(train, labels, features, 1), atol=1e-4, rtol=0)


def test_half_precision_and_blank_features() -> None:
    train, labels, features = random_features(0)
    found = knn_predict(train.bfloat16(), labels, features.bfloat16())
    assert found.dtype == torch.float32
    blank = knn_predict(train, labels, torch.zeros_like(features), num_neighbors=30)
    torch.testing.assert_close(blank[0], labels.nanmean(0))
    assert ((found >= 0) & (found <= 1)).all()
    whole = knn_predict(train.float(), torch.ones(30, 1), features.float(), num_neighbors=30)
    assert (whole <= 1).all()


def test_no_gradient_and_no_change() -> None:
    train, labels, features = random_features(0)
    copies = train.clone(), labels.clone(), features.clone()
    assert not knn_predict(train, labels, features.requires_grad_()).requires_grad
    torch.testing.assert_close(
        (train, labels, features.detach()), copies, rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize(
    ("train", "labels", "features", "options", "message"),
    [
        (
            torch.zeros(3, 2),
            torch.zeros(2, 1),
            torch.zeros(1, 2),
            {},
            r"\(3, 2\), train_labels \(2, 1\)",
        ),
        (torch.zeros(3, 2), torch.zeros(3, 1), torch.zeros(1, 4), {}, r"features \(1, 4\)"),
        (torch.zeros(3, 2), torch.zeros(3), torch.zeros(1, 2), {}, r"\(N, K\)"),
        (torch.zeros(0, 2), torch.zeros(0, 1), torch.zeros(1, 2), {}, "N > 0"),
        (torch.zeros(3, 2), torch.zeros(3, 1), torch.zeros(0, 2), {}, "M > 0"),
        (torch.zeros(3, 2), torch.full((3, 1), -1.0), torch.zeros(1, 2), {}, "resolve_uncertain"),
        (
            torch.tensor([[NAN], [1.0]]),
            torch.zeros(2, 1),
            torch.zeros(1, 1),
            {},
            "train_features of 1 of 2 images",
        ),
        (
            torch.zeros(2, 1),
            torch.zeros(2, 1),
            torch.tensor([[math.inf]]),
            {},
            "features of 1 of 1 images",
        ),
        (
            torch.zeros(2, 1),
            torch.zeros(2, 1),
            torch.zeros(1, 1),
            {"num_neighbors": 0},
            "num_neighbors",
        ),
        (
            torch.zeros(2, 1),
            torch.zeros(2, 1),
            torch.zeros(1, 1),
            {"temperature": 0.0},
            "temperature",
        ),
        (
            torch.zeros(2, 1),
            torch.zeros(2, 1),
            torch.zeros(1, 1),
            {"temperature": NAN},
            "temperature",
        ),
    ],
)
def test_hostile_input_is_named(
    train: Any, labels: Any, features: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        knn_predict(train, labels, features, **options)
