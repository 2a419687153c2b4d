# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of exclusive classes, against scikit-learn's and loops."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from monai_afire.apps.evaluation import multiclass_metrics, patient_weights
from monai_afire.apps.evaluation.metrics import expected_calibration_error


def case(seed: int, images: int, classes: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, images)
    scores = rng.random((images, classes)) + 0.5 * np.eye(classes)[labels]
    return (
        labels,
        scores / scores.sum(1, keepdims=True),
        [f"grade {number}" for number in range(classes)],
    )


@settings(max_examples=40)
@given(st.integers(0, 9999), st.integers(1, 40), st.integers(2, 5))
def test_all_equal_scikit_learn(seed: int, images: int, classes: int) -> None:
    labels, probabilities, names = case(seed, images, classes)
    decided = probabilities.argmax(1)
    found = multiclass_metrics(labels, probabilities, names)
    expected = oracle.confusion_matrix(labels, decided, labels=range(classes))
    assert found["confusion_matrix"] == expected.tolist()
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(labels, decided))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of decisions for classes that do not occur
        assert found["balanced_accuracy"] == pytest.approx(
            oracle.balanced_accuracy_score(labels, decided)
        )
        kappa = oracle.cohen_kappa_score(
            labels, decided, weights="quadratic", labels=list(range(classes))
        )
    assert found["quadratic_weighted_kappa"] == pytest.approx(kappa, nan_ok=True)
    aucs = []
    for number, name in enumerate(names):
        entry, own = found["per_class"][name], labels == number
        assert (entry["num_images"], entry["num_predicted"]) == (
            own.sum(),
            (decided == number).sum(),
        )
        precision, recall, f1, _ = oracle.precision_recall_fscore_support(
            own, decided == number, average="binary", zero_division=np.nan
        )
        assert entry["precision"] == pytest.approx(precision, nan_ok=True)
        assert entry["sensitivity"] == pytest.approx(recall, nan_ok=True)
        if own.any() or (decided == number).any():
            assert entry["f1"] == pytest.approx(np.nan_to_num(f1))
        if 0 < own.sum() < images:
            aucs.append(oracle.roc_auc_score(own, probabilities[:, number]))
            assert entry["auc"] == pytest.approx(aucs[-1])
        else:
            assert math.isnan(entry["auc"])
    assert found["mean_auc"] == pytest.approx(np.mean(aucs) if aucs else np.nan, nan_ok=True)


@given(st.integers(0, 9999), st.integers(1, 30), st.integers(1, 20))
@settings(max_examples=30)
def test_calibration_error_equals_a_loop(seed: int, images: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, correct = rng.integers(0, 21, images) / 20, rng.random(images) < 0.5
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        # the upper bound belongs to the bin, as in Guo et al.; the first one has 0, too
        own = [
            i
            for i in range(images)
            if low < confidence[i] <= high or (number == 0 and confidence[i] == 0)
        ]
        if own:
            gap = sum(float(correct[i]) - confidence[i] for i in own) / len(own)
            total += len(own) / images * abs(gap)
    assert expected_calibration_error(correct, confidence, bins) == pytest.approx(total, abs=1e-9)


def test_unknown_classes_are_left_out() -> None:
    labels, probabilities, names = case(0, 20, 3)
    expected = multiclass_metrics(labels[5:], probabilities[5:], names, num_bootstraps=20)
    labels[:5] = -1
    assert multiclass_metrics(labels, probabilities, names, num_bootstraps=20) == expected
    nothing = multiclass_metrics([-1, -1], probabilities[:2], names, num_bootstraps=5)
    assert nothing["num_images"] == 0
    assert all(
        math.isnan(nothing[name]) for name in ("mean_auc", "accuracy", "quadratic_weighted_kappa")
    )


def test_interval_is_by_patient() -> None:
    """Unknown classes leave the others with their patients."""
    labels, probabilities, names = case(2, 60, 3)
    labels[:7] = -1
    patients = np.repeat(np.arange(20), 3)
    found = multiclass_metrics(labels, probabilities, names, num_bootstraps=40, patients=patients)
    aucs = []
    for drawn in patient_weights(patients[7:], 40).astype(int):
        rows = 7 + np.repeat(np.arange(53), drawn)
        aucs.append(multiclass_metrics(labels[rows], probabilities[rows], names)["mean_auc"])
    assert found["mean_auc_interval"] == pytest.approx(np.quantile(aucs, [0.025, 0.975]))


def test_kappa_minds_the_order_of_the_grades() -> None:
    truth = [0] * 6 + [1] * 5 + [2] * 5

    def kappa(first: int) -> float:
        decided = np.eye(3)[[first, *truth[1:]]]
        return multiclass_metrics(truth, decided, "abc")["quadratic_weighted_kappa"]

    assert kappa(0) == 1 > kappa(1) > kappa(2)
    same = multiclass_metrics([0, 0], [[0.9, 0.1]] * 2, "ab")
    assert math.isnan(same["quadratic_weighted_kappa"])
    assert multiclass_metrics([-1], [[0.9, 0.1]], "ab")["confusion_matrix"] == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("labels", "probabilities", "name"),
    [
        ([0, 2], [[0.5, 0.5]] * 2, "labels"),
        ([0.5, 1], [[0.5, 0.5]] * 2, "labels"),
        ([0, 1], [[0.9, 0.9]] * 2, "softmax"),
        ([0, 1], [[np.nan, 0.5]] * 2, "softmax"),
        ([0], [[0.2, 0.3, 0.5]], "class names"),
    ],
)
def test_wrong_input_is_named(labels: list, probabilities: list, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        multiclass_metrics(labels, probabilities, ["none", "mild"])
