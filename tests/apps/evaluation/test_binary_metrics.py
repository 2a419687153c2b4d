# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of a detector of images against scikit-learn and cases by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

from monai_afire.apps.evaluation import weighted_metrics
from monai_afire.metrics.binary_classification import best_f1_threshold, roc_auc


def average_precision(labels: ArrayLike, scores: ArrayLike) -> float:
    weights = np.ones((1, np.size(labels)))
    return weighted_metrics(weights, labels, scores)["average_precision"][0]


def at_threshold(labels: ArrayLike, scores: ArrayLike, threshold: float) -> dict[str, float]:
    weights = np.ones((1, np.size(labels)))
    return weighted_metrics(weights, labels, scores, threshold).iloc[0, 2:].to_dict()


RANKED = (roc_auc, average_precision, best_f1_threshold)


def random_detector(seed: int, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores, with many ties for every other seed."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) < rng.integers(1, size))
    scores = rng.normal(size=size) + labels
    return labels.astype(int), scores.round(0 if seed % 2 else 9)


@pytest.mark.parametrize("seed", range(8))
def test_image_metrics_equal_scikit_learn(seed: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    labels, scores = random_detector(seed)
    expected = sklearn.roc_auc_score(labels, scores)
    assert roc_auc(labels, scores) == pytest.approx(expected, rel=1e-12)
    assert weighted_metrics(np.ones((1, 40)), labels, scores)["auc"][0] == roc_auc(labels, scores)
    assert average_precision(labels, scores) == pytest.approx(
        sklearn.average_precision_score(labels, scores)
    )
    threshold = best_f1_threshold(labels, scores)
    of_all = {t: sklearn.f1_score(labels, scores >= t) for t in np.unique(scores)}
    best = max(of_all.values())
    assert threshold == max(t for t, f1 in of_all.items() if math.isclose(f1, best, rel_tol=1e-12))
    at = at_threshold(labels, scores, threshold)
    assert at["f1"] == pytest.approx(best)
    assert at["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, scores >= threshold))
    assert at["sensitivity"] == pytest.approx(sklearn.recall_score(labels, scores >= threshold))
    assert at["specificity"] == pytest.approx(
        sklearn.recall_score(labels, scores >= threshold, pos_label=0)
    )


def test_image_metrics_by_hand() -> None:
    labels, scores = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    assert roc_auc(labels, scores) == 0.75
    assert average_precision(labels, scores) == pytest.approx((1 + 2 / 3) / 2)
    assert best_f1_threshold(labels, scores) == 0.35
    assert at_threshold(labels, scores, 0.35) == {
        "accuracy": 0.75,
        "f1": 0.8,
        "sensitivity": 1.0,
        "specificity": 0.5,
    }
    constant = [0.5] * 4
    assert (roc_auc(labels, constant), average_precision(labels, constant)) == (0.5, 0.5)
    assert (
        roc_auc([0, 1, 1], [-np.inf, np.inf, np.inf])
        == average_precision([0, 1, 1], [0, np.inf, np.inf])
        == 1.0
    )
    assert (
        average_precision([1, 0], [np.inf, np.inf])
        == average_precision([0, 1], [-np.inf, -np.inf])
        == 0.5
    )
    assert best_f1_threshold([0, 1, 1, 0], [np.inf, np.inf, 3, 2]) == 3.0
    assert isinstance(roc_auc(torch.tensor(labels).bool(), torch.tensor(scores)), float)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_nan(label: int) -> None:
    labels, scores = [label] * 3, [0.1, 0.2, 0.3]
    for metric in RANKED:
        assert math.isnan(metric(labels, scores))
    at = at_threshold(labels, scores, 0.2)
    assert at["accuracy"] == pytest.approx(2 / 3 if label else 1 / 3)
    assert math.isnan(at["f1"]) == math.isnan(at["sensitivity"]) == (label == 0)
    assert math.isnan(at["specificity"]) == (label == 1)
    assert all(math.isnan(x) for x in at_threshold(labels, scores, math.nan).values())
