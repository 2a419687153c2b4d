# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Conformal p-values, against counting by hand and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from naive.weighted_conformal import weighted_p_value

from monai_afire.detection.conformal import (
    conformal_p_values,
    discoveries,
    normals_needed,
    weighted_p_values,
)
from monai_afire.detection.score_thresholds import ScoreThresholds


@pytest.mark.parametrize("seed", range(5))
def test_p_values_are_counted_ranks(seed: int) -> None:
    random = np.random.default_rng(seed)
    normal, scores = (
        random.integers(0, 9, 30).astype(float),
        random.integers(-1, 11, 50).astype(float),
    )
    naive = [(1 + sum(each >= score for each in normal)) / 31 for score in scores]
    np.testing.assert_allclose(conformal_p_values(scores, normal), naive)


def test_normal_images_are_called_abnormal_no_more_often_than_stated() -> None:
    random = np.random.default_rng(0)
    rates = []
    for _ in range(400):
        normal, others = random.exponential(size=200), random.exponential(size=50)
        rates.append((conformal_p_values(others, normal) <= 0.05).mean())
    assert np.mean(rates) < 0.05 + 3 * np.std(rates) / 20


def test_p_values_of_nothing_are_unknown() -> None:
    assert np.isnan(conformal_p_values([1.0], [])).all()
    # a normal image that scores infinitely high is one of those that score at least as high
    assert conformal_p_values([5.0, np.inf], [0.0, 1.0, np.inf]).tolist() == [0.5, 0.5]
    assert np.isnan(conformal_p_values([np.nan, 1.0], [0, 2])).tolist() == [True, False]


def test_calibration_travels_with_the_state() -> None:
    fitted = ScoreThresholds(["focal", "fused"])
    scores = torch.rand(3000, 2)
    fitted.fit_thresholds(scores)
    assert len(fitted.calibration()) == 1024
    assert np.isin(fitted.calibration(), scores[:, 1].double().numpy()).all()
    # a random part: neither the first images nor the largest scores
    assert abs(np.mean(fitted.calibration()) - 0.5) < 0.05
    loaded = ScoreThresholds(["focal", "fused"])
    loaded.load_state_dict(fitted.state_dict())
    np.testing.assert_array_equal(loaded.p_values([0.5, 2.0]), fitted.p_values([0.5, 2.0]))


@pytest.mark.parametrize(("specificity", "needed"), [(0.95, 19), (0.99, 99), (0.75, 3)])
def test_too_few_normal_images_decide_nothing(specificity: float, needed: int) -> None:
    scores = ScoreThresholds(["focal", "fused"])
    for number in (needed, needed - 1):
        images = torch.rand(number + 5, 2)
        labels = torch.arange(len(images)) >= number  # the abnormal ones do not count
        scores.fit_thresholds(images, labels, specificity)
        assert bool(scores.thresholds.isfinite().all()) == (number >= needed)
    scores.fit_thresholds(torch.rand(2 * needed, 2), specificity=specificity)
    assert scores.thresholds.isfinite().all()
    scores.set_specificity(1 - 0.1 / needed)
    assert scores.thresholds.isnan().all(), "another specificity needs more of them"
    scores.set_specificity(specificity)
    assert scores.thresholds.isfinite().all()


def test_weighted_p_values_are_those_of_the_naive_twin() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        normal = random.integers(0, 9, 12).astype(float)
        weights, own = random.integers(0, 5, 12), int(random.integers(1, 5))
        for score in (-1.0, 4.0, 8.5):
            expected = weighted_p_value(score, normal.tolist(), weights.tolist(), own)
            [found] = weighted_p_values([score], normal, weights, [own])
            assert found == pytest.approx(float(expected))


def test_weights_of_one_are_no_weights() -> None:
    normal, scores = np.random.default_rng(0).normal(size=50), np.linspace(-3, 3, 9)
    found = weighted_p_values(scores, normal, np.full(50, 3.0), np.full(9, 3.0))
    np.testing.assert_allclose(found, conformal_p_values(scores, normal))
    assert math.isnan(weighted_p_values([math.nan], normal, np.ones(50), [1.0])[0])


def test_weights_repair_a_shift_of_the_mixture() -> None:
    """A tenth of the normal images is of a kind with higher scores, half of the new images are."""
    random = np.random.default_rng(0)
    kinds = np.repeat([0, 1], [9000, 1000])
    normal = random.normal(size=10_000) + 3 * kinds
    new_kinds = random.integers(0, 2, 4000)
    scores = random.normal(size=4000) + 3 * new_kinds
    ratio = np.array([0.5 / 0.9, 0.5 / 0.1])
    weighted = weighted_p_values(scores, normal, ratio[kinds], ratio[new_kinds])
    assert (conformal_p_values(scores, normal) <= 0.05).mean() > 0.12
    assert 0.03 < (weighted <= 0.05).mean() < 0.07


def test_enough_normal_images_reach_the_level() -> None:
    for level in (0.5, 0.2, 0.1, 0.05, 0.01, 0.001):
        needed = normals_needed(level)
        assert 1 / (needed + 1) <= level * (1 + 1e-9)
        assert 1 / needed > level * (1 + 1e-9)


def test_few_of_the_discoveries_are_normal() -> None:
    random = np.random.default_rng(0)
    false = []
    for _ in range(200):
        scores = np.concatenate([random.normal(size=80), random.normal(4, 1, size=20)])
        found = discoveries(conformal_p_values(scores, random.normal(size=500)), rate=0.1)
        false.append(found[:80].sum() / max(1, found.sum()))
        assert found[80:].sum() > 5
    assert np.mean(false) < 0.1


def test_unknown_p_values_are_no_discoveries() -> None:
    assert discoveries([np.nan, 0.001], 0.1).tolist() == [False, True]
