# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Drift of a folder, flag rates of groups, and names of places in the lungs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

from monai_afire.apps.worklist import flag_rates, lung_zone, measure_drift
from monai_afire.detection import conformal_p_values


def test_the_same_images_do_not_drift_and_a_shift_names_its_group() -> None:
    random = np.random.default_rng(0)
    same = measure_drift(random.uniform(size=200), {})
    assert same is not None
    assert not same.is_clear
    values = np.concatenate([random.uniform(size=100), random.uniform(size=100) ** 4])
    values[3] = np.nan  # not judged
    scanners = ["A"] * 100 + ["B"] * 100
    drift = measure_drift(values, {"scanner": scanners})
    assert drift is not None
    assert drift.is_clear
    assert (drift.group, drift.images) == ("scanner B", 199)
    assert drift.above_middle == (values[np.isfinite(values)] <= 0.5).mean()


def test_too_few_images_are_not_tested() -> None:
    assert measure_drift([0.001] * 19 + [np.nan] * 50, {}) is None
    assert measure_drift([0.001] * 20, {}) is not None


def test_flag_rates_count_known_groups_only() -> None:
    table = pd.DataFrame(
        {
            "decision": ["above", "below", "above", "below", ""],
            "sex": ["F", "F", "M", "", "M"],
            "age": ["39", "40", "", "101", "5"],
        }
    )
    rows = {
        (row["property"], row["group"]): (row["images"], row["above"])
        for row in flag_rates(table).to_dict("records")
    }
    assert rows == {
        ("sex", "F"): (2, 1),
        ("sex", "M"): (1, 1),
        ("age", "20 to 39"): (1, 1),
        ("age", "40 to 59"): (1, 0),
        ("age", "80 or more"): (1, 0),
    }


@pytest.mark.parametrize(
    ("row", "column", "name"),
    [
        (10, 10, "right lung, upper zone"),
        (50, 50, "left lung, lower zone"),
        (30, 54, "left lung, middle zone"),
        (30, 30, "between the lungs"),
        (1, 30, "outside the lungs"),
        (62, 2, "outside the lungs"),
    ],
)
def test_places_are_named_as_the_patient_has_them(row: int, column: int, name: str) -> None:
    lungs = np.zeros((64, 64))
    lungs[6:58, 6:24] = lungs[6:58, 40:58] = 0.9
    heat = np.zeros((64, 64))
    heat[row, column] = 2
    assert lung_zone(heat, lungs, low=1.0) == name
    assert lung_zone(heat, np.zeros((64, 64)), low=1.0) == ""
    assert lung_zone(heat, lungs, low=3.0) == ""


@pytest.mark.parametrize("number", [1, 2, 19, 20, 101])
def test_the_share_above_the_middle_is_counted_by_the_scores(number: int) -> None:
    """Scores of one digit, so that many are equal; of an even number, the middle is the upper one of two."""
    random = np.random.default_rng(number)
    normal, scores = random.integers(0, 10, number), random.integers(0, 12, 60)
    drift = measure_drift(conformal_p_values(scores, normal), {}, number)
    assert drift is not None
    assert drift.above_middle == (scores > np.sort(normal)[number // 2]).mean()


def test_the_difference_is_that_of_two_samples() -> None:
    random = np.random.default_rng(0)
    normal, scores = random.normal(size=19), random.normal(size=400)
    drift = measure_drift(conformal_p_values(scores, normal), {}, 19)
    expected = ks_2samp(scores, normal)
    assert drift is not None
    assert (drift.statistic, drift.p_value) == pytest.approx(expected[:2])


def test_a_few_normal_images_do_not_make_images_of_the_same_kind_differ() -> None:
    """As one sample against all normal images, every third such folder would differ."""
    random = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        p_values = conformal_p_values(random.normal(size=500), random.normal(size=19))
        drift = measure_drift(p_values, {}, 19)
        alarms += drift is not None and drift.is_clear
    assert alarms <= 2
