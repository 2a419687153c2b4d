# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of a detector of images against loops, scikit-learn and cases by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monai_afire.apps.evaluation.binary_metrics import (
    average_precision,
    bootstrap_interval,
    metrics_at_threshold,
)
from monai_afire.apps.evaluation.matched_pairs import matched_pairs
from monai_afire.apps.evaluation.patient_bootstrap import patient_weights
from monai_afire.metrics.binary_classification import best_f1_threshold, roc_auc

RANKED = (roc_auc, average_precision, best_f1_threshold)


def random_detector(seed: int, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores, with many ties for every other seed."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) < rng.integers(1, size))
    scores = rng.normal(size=size) + labels
    return labels.astype(int), scores.round(0 if seed % 2 else 9)


@pytest.mark.parametrize("seed", range(8))
def test_roc_auc_counts_pairs(seed: int) -> None:
    labels, scores = random_detector(seed)
    pairs = list(itertools.product(scores[labels == 1], scores[labels == 0]))
    expected = sum((a > n) + 0.5 * (a == n) for a, n in pairs) / len(pairs)
    assert roc_auc(labels, scores) == pytest.approx(expected, rel=1e-12)
    assert roc_auc(labels, -scores) == pytest.approx(1 - expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_image_metrics_equal_scikit_learn(seed: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    labels, scores = random_detector(seed)
    assert roc_auc(labels, scores) == pytest.approx(
        sklearn.roc_auc_score(labels, scores), rel=1e-12
    )
    assert average_precision(labels, scores) == pytest.approx(
        sklearn.average_precision_score(labels, scores)
    )
    threshold = best_f1_threshold(labels, scores)
    of_all = {t: sklearn.f1_score(labels, scores >= t) for t in np.unique(scores)}
    best = max(of_all.values())
    assert threshold == max(t for t, f1 in of_all.items() if math.isclose(f1, best, rel_tol=1e-12))
    at = metrics_at_threshold(labels, scores, threshold)
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
    assert metrics_at_threshold(labels, scores, 0.35) == {
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
    at = metrics_at_threshold(labels, scores, 0.2)
    assert at["accuracy"] == pytest.approx(2 / 3 if label else 1 / 3)
    assert math.isnan(at["f1"]) == math.isnan(at["sensitivity"]) == (label == 0)
    assert math.isnan(at["specificity"]) == (label == 1)
    assert all(math.isnan(x) for x in bootstrap_interval(roc_auc, labels, scores, num_samples=5))
    assert all(math.isnan(x) for x in metrics_at_threshold(labels, scores, math.nan).values())


@pytest.mark.parametrize(
    "metric", [*RANKED, lambda y, s: metrics_at_threshold(y, s, 0.5), matched_pairs]
)
def test_hostile_input_is_named(metric: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"index \[1, 3\]"):
        metric([0, 1, 0, 1], [0.1, math.nan, 0.3, math.nan])
    with pytest.raises(ValueError, match=r"\(3,\)"):
        metric([0, 1, 0], [0.1, 0.2])
    with pytest.raises(ValueError, match="M > 0"):
        metric([], [])
    with pytest.raises(ValueError, match="got 2 at index 1"):
        metric([0, 2, 1], [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        metric([[0, 1], [0, 1]], [[0.1, 0.2], [0.3, 0.4]])
    with pytest.raises(ValueError, match="at index 0"):
        metric([math.nan, 1], [0.1, 0.2])


def test_intervals_of_several_metrics_are_those_of_each() -> None:
    labels, scores = random_detector(1, 60)
    metrics = (roc_auc, average_precision)
    together = bootstrap_interval(
        lambda y, s: [metric(y, s) for metric in metrics], labels, scores, 50, seed=3
    )
    assert list(zip(*together, strict=True)) == [
        bootstrap_interval(m, labels, scores, 50, seed=3) for m in metrics
    ]


def test_intervals_by_patient_draw_all_images_of_a_patient() -> None:
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(20), 5)
    labels = np.repeat(rng.integers(0, 2, 20), 5)
    scores = np.repeat(rng.normal(size=20), 5) + labels
    single = bootstrap_interval(roc_auc, labels, scores, 200)
    together = bootstrap_interval(roc_auc, labels, scores, 200, patients=patients)
    drawn = [np.repeat(np.arange(100), row.astype(int)) for row in patient_weights(patients, 200)]
    expected = np.nanquantile(
        [roc_auc(labels[rows], scores[rows]) for rows in drawn], [0.025, 0.975]
    )
    np.testing.assert_allclose(together, expected)
    assert together[1] - together[0] > 1.5 * (single[1] - single[0])
    own = bootstrap_interval(roc_auc, labels, scores, 200, patients=np.arange(100))
    assert own == single


def test_samples_of_patients_without_a_class_are_left_out() -> None:
    low, high = bootstrap_interval(
        roc_auc, [1, 1, 0, 0], [3.0, 1.0, 2.0, 0.0], 50, patients=["a", "a", "b", "b"]
    )
    assert low == high == 0.75


def test_bootstrap_interval() -> None:
    labels, scores = random_detector(0, 200)
    lower, upper = bootstrap_interval(roc_auc, labels, scores, num_samples=300, seed=1)
    assert lower < roc_auc(labels, scores) < upper
    assert bootstrap_interval(roc_auc, labels, scores, num_samples=300, seed=1) == (lower, upper)
    assert bootstrap_interval(roc_auc, labels, scores, num_samples=300, seed=2) != (lower, upper)
    # the standard error of Hanley and McNeil (1982) is near a quarter of the 95 % interval
    auc, abnormal = roc_auc(labels, scores), labels.sum()
    normal = labels.size - abnormal
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (abnormal - 1) * (q1 - auc**2) + (normal - 1) * (q2 - auc**2)
    assert (upper - lower) / 3.92 == pytest.approx(
        math.sqrt(variance / (abnormal * normal)), rel=0.25
    )
    with pytest.raises(ValueError, match="num_samples"):
        bootstrap_interval(roc_auc, labels, scores, num_samples=0)
