# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The linear probe against the gradient of its own objective, hand-made cases, and wrong input."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from monai_afire.metrics import fit_linear_probe


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def drawn(images: int, seed: int, findings: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Features of unequal scale, and labels that depend on them."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(images, 5)) * [1, 10, 0.1, 3, 1] + [0, 5, 0, -2, 1]
    directions = np.random.default_rng(99).normal(size=(5, findings)) / np.array(
        [[1], [10], [0.1], [3], [1]]
    )
    return features, (
        random.uniform(size=(images, findings)) < sigmoid(features @ directions - 1)
    ).astype(float)


def test_the_fit_is_a_minimum_of_the_penalized_likelihood() -> None:
    features, labels = drawn(300, 0)
    labels[:40, 1] = np.nan
    probe = fit_linear_probe(features, labels, *drawn(100, 1), penalties=[0.1])
    standardized = (features - features.mean(0)) / features.std(0)
    np.testing.assert_allclose(probe.logits(features), standardized @ probe.weight.T + probe.bias)
    for k in range(3):
        known = ~np.isnan(labels[:, k])
        error = sigmoid(probe.logits(features[known])[:, k]) - labels[known, k]
        np.testing.assert_allclose(
            0.1 * standardized[known].T @ error + probe.weight[k], 0, atol=0.02
        )
        assert abs(error.sum()) < 0.05  # the bias has no penalty


def test_the_penalty_is_the_best_on_validation() -> None:
    train, validation = drawn(60, 2), drawn(200, 3)
    aucs = []
    for penalty in (1e-4, 1e-2, 1.0):
        logits = fit_linear_probe(*train, *validation, penalties=[penalty]).logits(validation[0])
        aucs.append(np.mean([roc_auc_score(validation[1][:, k], logits[:, k]) for k in range(3)]))
    probe = fit_linear_probe(*train, *validation, penalties=[1.0, 1e-4, 1e-2])
    assert probe.validation_auc == pytest.approx(max(aucs))
    assert probe.penalty == (1e-4, 1e-2, 1.0)[int(np.argmax(aucs))]


def test_a_finding_without_positives_gets_its_frequency() -> None:
    features, labels = drawn(49, 4, findings=1)
    probe = fit_linear_probe(features, np.zeros_like(labels), features, labels)
    assert (probe.weight == 0).all()
    assert sigmoid(probe.bias[0]) == pytest.approx(0.5 / 50)


@pytest.mark.parametrize("classes", [2, 3])
def test_exclusive_classes_have_calibrated_softmax(classes: int) -> None:
    features, _ = drawn(400, 5)
    numbers = (np.digitize(features[:, 0], [-0.5, 0.5]) % classes).astype(int)
    labels = np.eye(classes)[numbers]
    labels[:10] = np.nan
    probe = fit_linear_probe(features, labels, features, labels, label_kind="multiclass")
    logits = probe.logits(features[10:])
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(shares.mean(0), labels[10:].mean(0), atol=0.01)
    if classes == 2:  # the difference of the two logits is the logit of one finding
        finding = labels[:, 1:]
        one = fit_linear_probe(features, finding, features, finding, penalties=[probe.penalty])
        found = logits[:, 1] - logits[:, 0]
        np.testing.assert_allclose(found, one.logits(features[10:])[:, 0], rtol=1e-3, atol=1e-3)


def test_an_absent_class_is_the_least_likely() -> None:
    features, _ = drawn(90, 6)
    labels = np.eye(4)[(features[:, 0] > 0).astype(int) * 2]
    probe = fit_linear_probe(features, labels, features, labels, label_kind="multiclass")
    assert set(np.argsort(probe.logits(features).mean(0))[:2]) == {1, 3}


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.full((3, 2), np.nan), np.zeros((3, 1)), "features"),
        (np.zeros((3, 2)), np.array([[0.0], [1.0], [-1.0]]), "labels"),
    ],
)
def test_wrong_input_is_named(features: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_linear_probe(features, labels, features, labels)
