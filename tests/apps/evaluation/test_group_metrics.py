# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of groups of patients, against a loop over groups and findings."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from monai_afire.apps.evaluation import patient_weights, subgroup_metrics, weighted_metrics

METRICS, FEWEST_IMAGES, DRAWS = ["auc", "sensitivity", "specificity"], 10, 15


def random_set(seed: int, count: int = 160) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Facts, labels of two classes with unknown ones, and scores with ties."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "patient_id": rng.integers(0, 50, count).astype(str),
            "sex": rng.choice(["F", "M", ""], count, p=[0.5, 0.4, 0.1]),
            "age": rng.choice(["", "5", "19", "20", "59.5", "61", "80", "414"], count),
            "view": "PA",
        }
    )
    labels = rng.choice([0.0, 1.0, np.nan], (count, 2), p=[0.5, 0.4, 0.1])
    scores = (rng.normal(size=(count, 2)) + np.nan_to_num(labels)).round(1)
    return table, labels, scores


def age_band(text: str) -> str:
    if not text:
        return ""
    low = min(int(float(text)) // 20 * 20, 80)
    return "80 or more" if low == 80 else f"{low} to {low + 19}"


@pytest.mark.parametrize("seed", range(2))
def test_groups_against_a_loop(seed: int) -> None:
    table, labels, scores = random_set(seed)
    limits = {"a": 0.5, "b": 0.8}
    found = subgroup_metrics(table, labels, scores, [*limits.values()], [*limits], DRAWS)
    assert list(found) == ["sex", "age", "view", "manufacturer"]
    assert found["manufacturer"] == {"unknown": {"images": len(table)}}
    groups = {"sex": table["sex"], "age": table["age"].map(age_band), "view": table["view"]}
    for name, members in groups.items():
        assert set(found[name]) - {"unknown"} == set(members) - {""}
        for group, entry in found[name].items():
            own = (members == ("" if group == "unknown" else group)).to_numpy()
            assert entry["images"] == own.sum()
            if group == "unknown":
                continue
            weights = patient_weights(table["patient_id"][own], DRAWS, include_original=True)
            measured = []
            for number, (finding, limit) in enumerate(limits.items()):
                truth = labels[own, number]
                known = ~np.isnan(truth)
                of_class = entry["per_class"][finding]
                counts = [int((truth == value).sum()) for value in (1, 0)]
                assert [of_class["num_positive"], of_class["num_negative"]] == counts
                if min(counts) < FEWEST_IMAGES:
                    assert math.isnan(of_class["auc"])
                    continue
                values = weights[:, known], truth[known], scores[own, number][known], limit
                measured.append(weighted_metrics(*values)[METRICS].to_numpy())
                compare(of_class, measured[-1])
            assert entry["num_classes"] == len(measured)
            if measured:
                compare(entry, np.mean(measured, axis=0))


def compare(entry: dict, measured: np.ndarray) -> None:
    for name, (value, *samples) in zip(METRICS, measured.T, strict=True):
        assert entry[name] == pytest.approx(value)
        expected = np.nanquantile(samples, [0.025, 0.975])
        assert entry[f"{name}_interval"] == pytest.approx(expected.tolist())


def test_no_threshold_and_no_intervals() -> None:
    table, labels, scores = random_set(0)
    metrics = subgroup_metrics(table, labels, scores, [math.nan, 0.5], "ab", num_bootstraps=0)
    entry = metrics["view"]["PA"]
    assert "auc_interval" not in entry
    assert entry["per_class"]["a"]["auc"] > 0.5
    assert math.isnan(entry["per_class"]["a"]["sensitivity"])
    assert math.isnan(entry["sensitivity"])  # of both classes it is not known
