# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics over samples of patients, against scikit-learn on images that are really repeated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as oracle

from monai_afire.apps.evaluation import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
    weighted_metrics,
)
from monai_afire.metrics.binary_classification import best_f1_threshold, roc_auc


@pytest.mark.parametrize("seed", range(6))
def test_metrics_equal_scikit_learn(seed: int) -> None:
    """Of the images as they are and in samples, with many ties for every other seed."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(40) < 15).astype(int)
    scores = (rng.normal(size=40) + labels).round(0 if seed % 2 else 9)
    limit = best_f1_threshold(labels, scores)
    weights = patient_weights(rng.integers(0, 25, 40), 10, include_original=True)
    found = weighted_metrics(weights, labels, scores, limit).to_dict("records")
    for row, sample in zip(found, weights.astype(int), strict=True):
        truth, values = labels.repeat(sample), scores.repeat(sample)
        decided = values >= limit
        assert row == pytest.approx(
            {
                "auc": oracle.roc_auc_score(truth, values),
                "average_precision": oracle.average_precision_score(truth, values),
                "accuracy": oracle.accuracy_score(truth, decided),
                "f1": oracle.f1_score(truth, decided),
                "sensitivity": oracle.recall_score(truth, decided),
                "specificity": oracle.recall_score(truth, decided, pos_label=0),
            }
        )
    assert roc_auc(labels, scores) == pytest.approx(found[0]["auc"])
    others = {t: oracle.f1_score(labels, scores >= t) for t in np.unique(scores)}
    best = max(others.values())
    assert limit == max(t for t, f1 in others.items() if f1 == pytest.approx(best))


def test_metrics_by_hand() -> None:
    labels, scores = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    row = weighted_metrics(np.ones((1, 4)), labels, scores, 0.35).iloc[0].tolist()
    assert row == pytest.approx([0.75, (1 + 2 / 3) / 2, 0.75, 0.8, 1.0, 0.5])
    assert roc_auc(labels, scores) == 0.75
    assert roc_auc(labels, [0.5] * 4) == 0.5
    assert roc_auc([0, 1, 1], [-np.inf, np.inf, np.inf]) == 1.0
    assert best_f1_threshold(labels, scores) == 0.35
    for label in (0, 1):
        assert math.isnan(roc_auc([label] * 3, [0.1, 0.2, 0.3]))
        assert math.isnan(best_f1_threshold([label] * 3, [0.1, 0.2, 0.3]))


def test_a_sample_without_one_label_is_not_defined() -> None:
    samples = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    found = weighted_metrics(samples, [1, 1, 0], [0.2, 0.9, 0.4], 0.5)
    no_negative, no_positive, _ = found.to_dict("records")
    assert no_negative["sensitivity"] == no_negative["accuracy"] == 0.5
    assert no_positive["specificity"] == no_positive["accuracy"] == 1
    undefined = "auc", "average_precision"
    assert all(math.isnan(no_negative[name]) for name in (*undefined, "specificity"))
    assert all(math.isnan(no_positive[name]) for name in (*undefined, "sensitivity", "f1"))
    without_threshold = weighted_metrics(samples, [1, 1, 0], [0.2, 0.9, 0.4]).iloc[2]
    assert without_threshold["auc"] == 0.5
    assert without_threshold[2:].isna().all()


def naive_aucs(labels: NDArray, scores: NDArray, weights: NDArray) -> list[float]:
    """Put each image into the sample as often as it is drawn, and measure each finding that has both labels."""
    found = []
    for drawn in weights.astype(int):
        rows = np.arange(len(labels)).repeat(drawn)
        aucs = []
        for k in range(labels.shape[1]):
            known = [row for row in rows if not np.isnan(labels[row, k])]
            if len({labels[row, k] for row in known}) == 2:
                aucs.append(oracle.roc_auc_score(labels[known, k], scores[known, k]))
        found.append(np.mean(aucs) if aucs else np.nan)
    return found


def test_mean_auc_of_samples() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (40, 3)).astype(float)
    labels[random.uniform(size=labels.shape) < 0.2] = np.nan
    scores, patients = random.integers(0, 6, (40, 3)) / 2.0, random.integers(0, 15, 40)
    weights = patient_weights(patients.tolist(), 25, include_original=True)
    expected = naive_aucs(labels, scores, weights)
    np.testing.assert_allclose(bootstrap_aucs(labels, scores, weights), expected)


def test_patients_are_drawn_whole() -> None:
    patients = ["a", "b", "a", "c", "b", "a"]
    weights = patient_weights(patients, 4000, seed=1)
    assert weights.shape == (4000, 6)
    assert (weights[:, [0, 0, 1]] == weights[:, [2, 5, 4]]).all()
    assert (weights[:, [0, 1, 3]].sum(1) == 3).all()  # as many patients as there are
    assert weights.mean(0) == pytest.approx(1, abs=0.05)
    assert (weights[:, 3] == 0).mean() == pytest.approx((2 / 3) ** 3, abs=0.03)
    original, *same = patient_weights(patients, 4000, seed=1, include_original=True)
    assert (original == 1).all()
    np.testing.assert_array_equal(same, weights)


def test_unknown_patients_are_one() -> None:
    weights = patient_weights(["a", None, "b", float("nan")], 50)
    np.testing.assert_array_equal(weights[:, 1], weights[:, 3])
    assert (weights[:, 1] != weights[:, 2]).any()
    assert patient_weights([], 3).shape == (3, 0)


def test_one_patient_says_nothing_of_others() -> None:
    weights = patient_weights(["a"] * 4, 20, include_original=True)
    scores = np.array([[[0.0], [1.0], [2.0], [3.0]], [[1.0], [0.0], [2.0], [0.5]]])
    labels = np.array([[0.0], [0.0], [1.0], [1.0]])
    first, second = (bootstrap_aucs(labels, each, weights) for each in scores)
    assert first[0] == 1
    assert np.isnan(first[1:]).all()
    assert np.isnan(bootstrap_p_value((second - first)[1:]))
    assert np.isnan(bootstrap_p_value((first - first)[1:]))


def test_p_value_counts_both_sides() -> None:
    differences = np.random.default_rng(0).normal(0.5, 1, 200)
    below = sum(value <= 0 for value in differences)
    assert bootstrap_p_value([*differences, np.nan]) == pytest.approx(2 * (below + 1) / 201)
    assert bootstrap_p_value(-differences) == bootstrap_p_value(differences)
    assert bootstrap_p_value([0.0] * 5) == 1
    assert np.isnan(bootstrap_p_value([0.3] * 5)), "as those of one patient"
