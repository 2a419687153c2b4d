# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of a classifier with incomplete labels against scikit-learn on the known ones."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from monai_afire.apps.evaluation import classification_metrics, patient_weights
from monai_afire.metrics.binary_classification import best_f1_threshold
from monai_afire.metrics.multilabel import best_thresholds, mean_auc

NAN = math.nan
FIGURES = ("auc", "average_precision", "accuracy", "f1", "sensitivity", "specificity")


def random_classifier(seed: int, size: int = 60, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Labels of all four kinds and probabilities, with many ties for every other seed."""
    rng = np.random.default_rng(seed)
    truth = rng.random((size, classes)) < rng.uniform(0.1, 0.9, classes)
    logits = rng.normal(size=(size, classes)) + truth
    labels = np.where(rng.random(truth.shape) < 0.2, rng.choice([-1.0, NAN], truth.shape), truth)
    return labels, (1 / (1 + np.exp(-logits))).round(1 if seed % 2 else 9)


def known(
    labels: np.ndarray, values: np.ndarray, column: int, policy: str
) -> tuple[np.ndarray, np.ndarray]:
    """One class by a loop over the images."""
    counts_as = {"ignore": None, "ones": 1, "zeros": 0}[policy]
    pairs = []
    for label, value in zip(labels[:, column], values[:, column], strict=True):
        resolved = counts_as if label == -1 else label
        if resolved is not None and not math.isnan(resolved):
            pairs.append((int(resolved), value))
    return np.array([p[0] for p in pairs], dtype=int), np.array([p[1] for p in pairs])


@pytest.mark.parametrize("policy", ["ignore", "ones", "zeros"])
@pytest.mark.parametrize("seed", range(6))
def test_equals_scikit_learn(seed: int, policy: str) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    labels, probabilities = random_classifier(seed)
    names, thresholds = ["a", "b", "c", "d"], [0.2, 0.5, 0.6, 0.8]
    metrics = classification_metrics(labels, probabilities, names, thresholds, policy)
    for column, (name, threshold) in enumerate(zip(names, thresholds, strict=True)):
        truth, values = known(labels, probabilities, column, policy)
        called = values >= threshold
        expected = {
            "auc": sklearn.roc_auc_score(truth, values),
            "average_precision": sklearn.average_precision_score(truth, values),
            "accuracy": sklearn.accuracy_score(truth, called),
            "f1": sklearn.f1_score(truth, called),
            "sensitivity": sklearn.recall_score(truth, called),
            "specificity": sklearn.recall_score(truth, called, pos_label=0),
            "threshold": threshold,
            "num_positive": truth.sum(),
            "num_negative": (1 - truth).sum(),
        }
        assert metrics["per_class"][name] == pytest.approx(expected)
    for figure in ("auc", "average_precision", "f1"):
        mean = np.mean([metrics["per_class"][name][figure] for name in names])
        assert metrics[f"mean_{figure}"] == pytest.approx(mean)
    assert metrics["num_images"] == 60
    assert mean_auc(labels, probabilities, policy) == pytest.approx(metrics["mean_auc"])


def test_by_hand() -> None:
    labels = [[1, 1, 0, None], [0, -1, 0, None], [1, 0, 0, None], [None, 0, 0, None]]
    probabilities = [
        [0.9, 0.3, 0.1, 0.5],
        [0.5, 0.9, 0.2, 0.5],
        [0.4, 0.2, 0.9, 0.5],
        [0.7, 0.6, 0.1, 0.5],
    ]
    metrics = classification_metrics(
        labels, probabilities, ["Edema", "Nodule", "Absent", "Unknown"]
    )
    per_class = metrics.pop("per_class")
    assert metrics == pytest.approx(
        {"num_images": 4, "mean_auc": 0.5, "mean_average_precision": 2 / 3, "mean_f1": 0.25}
    )
    assert per_class["Edema"] == pytest.approx(
        {
            "auc": 0.5,
            "average_precision": (1 + 2 / 3) / 2,
            "accuracy": 1 / 3,
            "f1": 0.5,
            "sensitivity": 0.5,
            "specificity": 0.0,
            "threshold": 0.5,
            "num_positive": 2,
            "num_negative": 1,
        }
    )
    assert per_class["Nodule"]["auc"] == 0.5
    assert (per_class["Nodule"]["f1"], per_class["Nodule"]["num_negative"]) == (0.0, 2)
    for name, negative in (("Absent", 4), ("Unknown", 0)):
        assert all(math.isnan(per_class[name][figure]) for figure in FIGURES)
        assert (per_class[name]["num_positive"], per_class[name]["num_negative"]) == (0, negative)
    ones = classification_metrics(labels, probabilities, "abcd", uncertain="ones")["per_class"]["b"]
    assert ones["num_positive"] == 2
    assert ones["auc"] == 0.75


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
    assert math.isnan(mean_auc(np.empty((3, 0)), np.empty((3, 0))))


def test_undecided_class_keeps_its_ranking() -> None:
    labels, probabilities = random_classifier(2)
    metrics = classification_metrics(labels, probabilities, "abcd", [0.5, NAN, 0.5, 0.5])
    entry = metrics["per_class"]["b"]
    assert math.isnan(entry["f1"])
    assert math.isfinite(entry["auc"])
    assert metrics["mean_f1"] == pytest.approx(
        np.mean([metrics["per_class"][name]["f1"] for name in "acd"])
    )


@pytest.mark.parametrize("policy", ["ignore", "ones"])
def test_best_thresholds(policy: str) -> None:
    labels, probabilities = random_classifier(2)
    labels[:, 3] = NAN
    found = best_thresholds(labels, probabilities, policy)
    expected = [
        best_f1_threshold(*known(labels, probabilities, column, policy)) for column in range(3)
    ]
    assert found.tolist() == [*expected, 0.5]
    best = classification_metrics(labels, probabilities, "abcd", found, policy)
    for threshold in np.linspace(0, 1, 11):
        assert classification_metrics(labels, probabilities, "abcd", [threshold] * 4, policy)[
            "mean_f1"
        ] <= (best["mean_f1"] + 1e-12)


def test_interval_draws_patients_with_all_their_images() -> None:
    labels, probabilities = random_classifier(0, 90, 2)
    patients = np.repeat([f"p{number}" for number in range(30)], 3)
    found = classification_metrics(
        labels, probabilities, "ab", num_bootstraps=50, patients=patients
    )
    aucs = []
    for drawn in patient_weights(patients, 50).astype(int):
        rows = np.repeat(np.arange(90), drawn)
        aucs.append(mean_auc(labels[rows], probabilities[rows]))
    assert found["mean_auc_interval"] == pytest.approx(np.quantile(aucs, [0.025, 0.975]))
    alone = classification_metrics(labels, probabilities, "ab", num_bootstraps=50)
    each = classification_metrics(
        labels, probabilities, "ab", num_bootstraps=50, patients=np.arange(90)
    )
    assert alone["mean_auc_interval"] == each["mean_auc_interval"] != found["mean_auc_interval"]


GOOD: dict[str, Any] = {
    "labels": [[0.0, 1.0], [1.0, 0.0], [NAN, -1.0]],
    "probabilities": [[0.1, 0.8], [0.7, 0.2], [0.5, 0.5]],
    "class_names": ["a", "b"],
}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"class_names": ["a"]}, "class names"),
        ({"labels": [[0, 1], [1, 0], [2, 0]]}, "2"),
        ({"labels": [[0, 1]]}, "labels"),
        ({"labels": np.zeros((0, 2)), "probabilities": np.zeros((0, 2))}, "labels"),
        ({"probabilities": [[0.1, NAN], [0.7, 0.2], [0.5, 0.5]]}, "NaN"),
        ({"probabilities": [[0.1, 0.8], [0.7, -2.5], [0.5, 0.5]]}, "probabilities"),
        ({"thresholds": [0.5]}, "thresholds"),
        ({"thresholds": [0.5, 1.5]}, "thresholds"),
        ({"uncertain": "maybe"}, "maybe"),
        ({"num_bootstraps": -1}, "num_samples"),
    ],
)
def test_wrong_input_is_named(change: dict[str, Any], name: str) -> None:
    assert classification_metrics(**GOOD)["mean_auc"] == 1.0
    with pytest.raises(ValueError, match=name):
        classification_metrics(**{**GOOD, **change})
