# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The check of p-values holds for exchangeable images, and sees where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from monai_afire.detection import load_detector
from tests.evidence.detector_calibration import LEVELS, RELEASED, halves, once


def test_exchangeable_normals_keep_the_levels() -> None:
    scores = np.random.default_rng(1).normal(size=800)
    np.testing.assert_allclose(halves(scores, np.arange(800)).mean(axis=0), LEVELS, atol=0.01)


def test_a_patient_counts_once() -> None:
    scores = np.concatenate([np.zeros(50), np.full(50, 9.0)])
    # the high scores are all of one patient
    patients = np.concatenate([np.arange(50), np.full(50, 99)])
    shares = halves(scores, patients, number=40)
    assert shares.max() <= 1 / 25


def test_shifted_images_are_seen() -> None:
    normal = np.random.default_rng(2).normal(size=500)
    row = once("shifted", normal + 2, normal)
    assert float(str(row["p <= 0.05"]).split()[0]) > 0.5


@pytest.mark.parametrize("name", ["fused", "focal"])
def test_the_released_detector_keeps_the_scores_of_its_held_out_normals(name: str) -> None:
    detector = load_detector(RELEASED)
    kept = detector.calibration(name)
    assert len(kept) == 871
    # thresholds were taken from 218 of them, at a specificity of 0.95
    assert (
        0.02 < np.mean(kept > detector.thresholds[detector.score_names.index(name)].item()) < 0.09
    )
