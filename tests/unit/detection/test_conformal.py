# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Conformal p-values, against counting by hand and by simulation."""

from __future__ import annotations

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


def test_p_values_are_counted_ranks() -> None:
    random = np.random.default_rng(0)
    normal, scores = (
        random.integers(0, 9, 30).astype(float),
        random.integers(-1, 11, 50).astype(float),
    )
    naive = [(1 + sum(each >= score for each in normal)) / 31 for score in scores]
    np.testing.assert_allclose(conformal_p_values(scores, normal), naive)


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


@pytest.mark.parametrize(("specificity", "needed"), [(0.95, 19), (0.75, 3)])
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


def test_enough_normal_images_reach_the_level() -> None:
    for level in (0.5, 0.2, 0.1, 0.05, 0.01, 0.001):
        needed = normals_needed(level)
        assert 1 / (needed + 1) <= level * (1 + 1e-9)
        assert 1 / needed > level * (1 + 1e-9)


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    p_values = [0.001, 0.03, 0.02, np.nan, 0.5, 0.9]
    # sorted: 0.001, 0.02, 0.03 of five known, against 0.1 n / 5 = 0.02, 0.04, 0.06
    assert discoveries(p_values, 0.1).tolist() == [True, True, True, False, False, False]
    assert discoveries(p_values, 0.04).tolist() == [True, False, False, False, False, False]
