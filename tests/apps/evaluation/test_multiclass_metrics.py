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
    names = [f"grade {number}" for number in range(classes)]
    return labels, scores / scores.sum(1, keepdims=True), names


@settings(max_examples=25)
@given(st.integers(0, 9999), st.integers(1, 40), st.integers(2, 5))
def test_all_equal_scikit_learn(seed: int, images: int, classes: int) -> None:
    labels, probabilities, names = case(seed, images, classes)
    decided, every = probabilities.argmax(1), range(classes)
    found = multiclass_metrics(labels, probabilities, names)
    matrix = oracle.confusion_matrix(labels, decided, labels=every)
    assert found["confusion_matrix"] == matrix.tolist()
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(labels, decided))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of decisions for classes that do not occur
        balanced = oracle.balanced_accuracy_score(labels, decided)
        kappa = oracle.cohen_kappa_score(labels, decided, weights="quadratic", labels=every)
    assert found["balanced_accuracy"] == pytest.approx(balanced)
    assert found["quadratic_weighted_kappa"] == pytest.approx(kappa, nan_ok=True)
    aucs = []
    for number, name in enumerate(names):
        entry, own, called = found["per_class"][name], labels == number, decided == number
        assert (entry["num_images"], entry["num_predicted"]) == (own.sum(), called.sum())
        precision, recall, f1, _ = oracle.precision_recall_fscore_support(
            own, called, average="binary", zero_division=np.nan
        )
        assert entry["precision"] == pytest.approx(precision, nan_ok=True)
        assert entry["sensitivity"] == pytest.approx(recall, nan_ok=True)
        if own.any() or called.any():
            assert entry["f1"] == pytest.approx(np.nan_to_num(f1))
        if 0 < own.sum() < images:
            aucs.append(oracle.roc_auc_score(own, probabilities[:, number]))
            assert entry["auc"] == pytest.approx(aucs[-1])
        else:
            assert math.isnan(entry["auc"])
    assert found["mean_auc"] == pytest.approx(np.mean(aucs) if aucs else np.nan, nan_ok=True)


@given(st.integers(0, 9999), st.integers(1, 30), st.integers(1, 20))
@settings(max_examples=20)
def test_calibration_error_equals_a_loop(seed: int, images: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, correct = rng.integers(0, 21, images) / 20, rng.random(images) < 0.5
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        # the upper bound belongs to the bin, as in Guo et al.; the first one has 0, too
        own = (confidence > low) & (confidence <= high) | (number == 0) & (confidence == 0)
        if own.any():
            total += own.mean() * abs(correct[own].mean() - confidence[own].mean())
    assert expected_calibration_error(correct, confidence, bins) == pytest.approx(total, abs=1e-9)


def test_unknown_classes_are_left_out_and_intervals_are_by_patient() -> None:
    labels, probabilities, names = case(2, 60, 3)
    labels[:7] = -1
    patients = np.repeat(np.arange(20), 3)
    found = multiclass_metrics(labels, probabilities, names, num_bootstraps=40, patients=patients)
    rest = labels[7:], probabilities[7:], names
    assert found == multiclass_metrics(*rest, num_bootstraps=40, patients=patients[7:])
    aucs = []
    for drawn in patient_weights(patients[7:], 40).astype(int):
        rows = 7 + np.repeat(np.arange(53), drawn)
        aucs.append(multiclass_metrics(labels[rows], probabilities[rows], names)["mean_auc"])
    assert found["mean_auc_interval"] == pytest.approx(np.quantile(aucs, [0.025, 0.975]))
    nothing = multiclass_metrics([-1, -1], probabilities[:2], names, num_bootstraps=5)
    assert nothing["num_images"] == 0
    undefined = "mean_auc", "accuracy", "quadratic_weighted_kappa"
    assert all(math.isnan(nothing[name]) for name in undefined)
    assert all(math.isnan(end) for end in nothing["mean_auc_interval"])


@pytest.mark.parametrize(
    ("labels", "probabilities", "name"),
    [
        ([0, 2], [[0.5, 0.5]] * 2, "labels"),
        ([0, 1], [[0.9, 0.9]] * 2, "softmax"),
        ([0], [[0.2, 0.3, 0.5]], "class names"),
    ],
)
def test_wrong_input_is_named(labels: list, probabilities: list, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        multiclass_metrics(labels, probabilities, ["none", "mild"])
