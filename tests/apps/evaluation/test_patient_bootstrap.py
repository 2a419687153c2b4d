# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bootstrap by patient against samples that are really drawn, and scikit-learn's AUC of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from monai_afire.apps.evaluation import (
    bootstrap_aucs,
    bootstrap_p_value,
    patient_weights,
    weighted_metrics,
)
from monai_afire.metrics import mean_auc


def made(seed: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Labels with unknown ones, scores with ties, and patients with one to several images."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, (40, 3)).astype(float)
    labels[random.uniform(size=labels.shape) < 0.2] = np.nan
    return labels, random.integers(0, 6, (40, 3)) / 2.0, random.integers(0, 15, 40).astype(str)


def naive_aucs(labels: NDArray, scores: NDArray, weights: NDArray) -> list[float]:
    """Put each image into the sample as often as it is drawn, and measure each finding that has both labels."""
    found = []
    for drawn in weights.astype(int):
        rows = [row for row in range(len(labels)) for _ in range(drawn[row])]
        aucs = []
        for k in range(labels.shape[1]):
            known = [row for row in rows if not np.isnan(labels[row, k])]
            if len({labels[row, k] for row in known}) == 2:
                aucs.append(roc_auc_score(labels[known, k], scores[known, k]))
        found.append(np.mean(aucs) if aucs else np.nan)
    return found


def test_weighted_images_are_drawn_images() -> None:
    labels, scores, patients = made()
    weights = patient_weights(patients.tolist(), num_samples=25)
    np.testing.assert_allclose(
        bootstrap_aucs(labels, scores, weights), naive_aucs(labels, scores, weights)
    )


def test_each_image_once_is_the_auc() -> None:
    labels, scores, _ = made(1)
    assert bootstrap_aucs(labels, scores, np.ones((1, 40)))[0] == pytest.approx(
        mean_auc(labels, scores)
    )


def test_one_patient_says_nothing_of_others() -> None:
    weights = patient_weights(["a"] * 4, num_samples=20, include_original=True)
    assert (weights[0] == 1).all()
    scores = np.array([[[0.0], [1.0], [2.0], [3.0]], [[1.0], [0.0], [2.0], [0.5]]])
    labels = np.array([[0.0], [0.0], [1.0], [1.0]])
    first, second = (bootstrap_aucs(labels, each, weights) for each in scores)
    assert first[0] == 1
    assert np.isnan(first[1:]).all()
    assert np.isnan(bootstrap_p_value((second - first)[1:]))
    assert np.isnan(bootstrap_p_value((first - first)[1:]))
    assert bootstrap_p_value(np.zeros(20)) == 1


def test_unknown_patients_are_not_another_one() -> None:
    weights = patient_weights(["a", None, "b", float("nan")], num_samples=50)
    np.testing.assert_array_equal(weights[:, 1], weights[:, 3])
    assert (weights[:, 1] != weights[:, 2]).any()
    assert patient_weights([], num_samples=3).shape == (3, 0)


def test_the_original_sample_comes_before_the_same_draws() -> None:
    for patients in (["a", "a", "b"], []):
        weights = patient_weights(patients, num_samples=5, seed=2, include_original=True)
        np.testing.assert_array_equal(weights[0], np.ones(len(patients)))
        np.testing.assert_array_equal(weights[1:], patient_weights(patients, num_samples=5, seed=2))


def test_p_value_counts_both_sides() -> None:
    differences = np.random.default_rng(0).normal(0.5, 1, 200)
    below = sum(value <= 0 for value in differences)
    assert bootstrap_p_value([*differences, np.nan]) == pytest.approx(2 * (below + 1) / 201)
    assert bootstrap_p_value(-differences) == bootstrap_p_value(differences)
    assert bootstrap_p_value([0.0] * 5) == 1
    assert np.isnan(bootstrap_p_value([np.nan]))


def test_a_sample_without_one_label_is_not_defined() -> None:
    samples = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    no_negative, no_positive = weighted_metrics(samples, [1, 1, 0], [0.2, 0.9, 0.4], 0.5).to_dict(
        "records"
    )
    assert no_negative["sensitivity"] == no_negative["accuracy"] == 0.5
    assert no_positive["specificity"] == no_positive["accuracy"] == 1
    undefined = "auc", "average_precision"
    assert all(math.isnan(no_negative[name]) for name in (*undefined, "specificity"))
    assert all(math.isnan(no_positive[name]) for name in (*undefined, "sensitivity", "f1"))
    without = weighted_metrics(np.ones((1, 3)), [1, 1, 0], [0.2, 0.9, 0.4]).iloc[0]
    assert without["auc"] == 0.5
    assert without[2:].isna().all()


def test_patients_are_drawn_whole() -> None:
    patients = ["a", "b", "a", "c", "b", "a"]
    weights = patient_weights(patients, 4000, seed=1)
    assert weights.shape == (4000, 6)
    assert (weights[:, [0, 0, 1]] == weights[:, [2, 5, 4]]).all()
    assert (weights[:, [0, 1, 3]].sum(1) == 3).all()  # as many patients as there are
    assert weights.mean(0) == pytest.approx(1, abs=0.05)
    assert (weights[:, 3] == 0).mean() == pytest.approx((2 / 3) ** 3, abs=0.03)
    assert np.array_equal(weights, patient_weights(patients, 4000, seed=1))
    assert not np.array_equal(weights, patient_weights(patients, 4000, seed=2))
