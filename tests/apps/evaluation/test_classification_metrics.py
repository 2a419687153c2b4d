# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of a classifier with incomplete labels, against scikit-learn on the known ones."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as oracle

from monai_afire.apps.evaluation import classification_metrics, patient_weights
from monai_afire.metrics.binary_classification import best_f1_threshold
from monai_afire.metrics.multilabel import best_thresholds, mean_auc

NAN = math.nan


def random_classifier(seed: int, size: int = 60, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Labels of all four kinds and probabilities, with many ties for every other seed."""
    rng = np.random.default_rng(seed)
    truth = rng.random((size, classes)) < rng.uniform(0.1, 0.9, classes)
    logits = rng.normal(size=(size, classes)) + truth
    labels = np.where(rng.random(truth.shape) < 0.2, rng.choice([-1.0, NAN], truth.shape), truth)
    return labels, (1 / (1 + np.exp(-logits))).round(1 if seed % 2 else 9)


def known(labels: np.ndarray, values: np.ndarray, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """One class by a loop over the images."""
    counts_as = {"ignore": NAN, "ones": 1, "zeros": 0}[policy]
    resolved = [counts_as if label == -1 else label for label in labels]
    pairs = [(x, y) for x, y in zip(resolved, values, strict=True) if not math.isnan(x)]
    return np.array([x for x, _ in pairs], dtype=int), np.array([y for _, y in pairs])


@pytest.mark.parametrize("policy", ["ignore", "ones", "zeros"])
@pytest.mark.parametrize("seed", range(2))
def test_equals_scikit_learn(seed: int, policy: str) -> None:
    labels, probabilities = random_classifier(seed)
    thresholds = {"a": 0.2, "b": 0.5, "c": 0.6, "d": 0.8}
    limits = [*thresholds.values()]
    metrics = classification_metrics(labels, probabilities, [*thresholds], limits, policy)
    for column, (name, threshold) in enumerate(thresholds.items()):
        truth, values = known(labels[:, column], probabilities[:, column], policy)
        called = values >= threshold
        expected = {
            "auc": oracle.roc_auc_score(truth, values),
            "average_precision": oracle.average_precision_score(truth, values),
            "accuracy": oracle.accuracy_score(truth, called),
            "f1": oracle.f1_score(truth, called),
            "sensitivity": oracle.recall_score(truth, called),
            "specificity": oracle.recall_score(truth, called, pos_label=0),
            "threshold": threshold,
            "num_positive": truth.sum(),
            "num_negative": (1 - truth).sum(),
        }
        assert metrics["per_class"][name] == pytest.approx(expected)
        best = best_thresholds(labels, probabilities, policy)[column]
        assert best == best_f1_threshold(truth, values)
    for figure in ("auc", "average_precision", "f1"):
        mean = np.mean([entry[figure] for entry in metrics["per_class"].values()])
        assert metrics[f"mean_{figure}"] == pytest.approx(mean)
    assert mean_auc(labels, probabilities, policy) == pytest.approx(metrics["mean_auc"])


def test_means_are_over_the_defined_classes() -> None:
    labels = [[1, 1, 0, None], [0, -1, 0, None], [1, 0, 0, None], [None, 0, 0, None]]
    columns = [0.9, 0.5, 0.4, 0.7], [0.3, 0.9, 0.2, 0.6], [0.1, 0.2, 0.9, 0.1], [0.5] * 4
    probabilities = np.transpose(columns)
    metrics = classification_metrics(labels, probabilities, "abcd")
    per_class = metrics.pop("per_class")
    assert metrics == pytest.approx(
        {"num_images": 4, "mean_auc": 0.5, "mean_average_precision": 2 / 3, "mean_f1": 0.25}
    )
    counts = [(entry["num_positive"], entry["num_negative"]) for entry in per_class.values()]
    assert counts == [(2, 1), (1, 2), (0, 4), (0, 0)]
    assert math.isnan(per_class["c"]["accuracy"])


@pytest.mark.parametrize("label", [0.0, 1.0, NAN, -1.0])
def test_nothing_defined_is_nan_and_silent(label: float) -> None:
    labels, probabilities = np.full((5, 2), label), np.full((5, 2), 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = classification_metrics(labels, probabilities, ["a", "b"], num_bootstraps=3)
        assert math.isnan(mean_auc(labels, probabilities))
        assert best_thresholds(labels, probabilities).tolist() == [0.5, 0.5]
    assert all(math.isnan(metrics[f"mean_{name}"]) for name in ("auc", "average_precision", "f1"))
    assert all(math.isnan(end) for end in metrics["mean_auc_interval"])


def test_interval_draws_patients_with_all_their_images() -> None:
    labels, probabilities = random_classifier(0, 90, 2)

    def interval(patients: Any) -> tuple[float, float]:
        found = classification_metrics(
            labels, probabilities, "ab", num_bootstraps=50, patients=patients
        )
        return found["mean_auc_interval"]

    patients = np.repeat([f"p{number}" for number in range(30)], 3)
    aucs = []
    for drawn in patient_weights(patients, 50).astype(int):
        rows = np.repeat(np.arange(90), drawn)
        aucs.append(mean_auc(labels[rows], probabilities[rows]))
    assert interval(patients) == pytest.approx(np.quantile(aucs, [0.025, 0.975]))
    assert interval(None) == interval(np.arange(90)) != interval(patients)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"class_names": ["a"]}, "class names"),
        ({"labels": [[0, 1], [1, 0], [2, 0]]}, "2"),
        ({"probabilities": [[0.1, 0.8], [0.7, -2.5], [0.5, 0.5]]}, "probabilities"),
        ({"thresholds": [0.5, 1.5]}, "thresholds"),
    ],
)
def test_wrong_input_is_named(change: dict[str, Any], name: str) -> None:
    good: dict[str, Any] = {
        "labels": [[0.0, 1.0], [1.0, 0.0], [NAN, -1.0]],
        "probabilities": [[0.1, 0.8], [0.7, 0.2], [0.5, 0.5]],
        "class_names": ["a", "b"],
    }
    assert classification_metrics(**good)["mean_auc"] == 1.0
    with pytest.raises(ValueError, match=name):
        classification_metrics(**good | change)
