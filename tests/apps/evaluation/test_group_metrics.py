# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Metrics of groups and their intervals over patients, against scikit-learn on images that are really repeated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import recall_score, roc_auc_score

from monai_afire.apps.evaluation import patient_weights, subgroup_metrics, weighted_metrics
from monai_afire.apps.evaluation.metrics import FEWEST_IMAGES, GROUP_METRICS


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


def naive(labels: np.ndarray, scores: np.ndarray, threshold: float) -> list[float]:
    """AUC, sensitivity, specificity."""
    if len(set(labels)) < 2:
        return [math.nan] * 3
    decided = scores >= threshold
    return [
        roc_auc_score(labels, scores),
        recall_score(labels, decided),
        recall_score(1 - labels, ~decided),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_weights_repeat_images(seed: int) -> None:
    table, labels, scores = random_set(seed, 60)
    truth, values = (labels[:, 0] == 1).astype(int), scores[:, 0]
    weights = patient_weights(table["patient_id"].tolist(), 20, seed)
    found = weighted_metrics(weights, truth, values, 0.5)[[*GROUP_METRICS]].to_numpy()
    for row, measured in zip(weights.astype(int), found, strict=True):
        assert measured.tolist() == pytest.approx(naive(truth.repeat(row), values.repeat(row), 0.5))


def age_band(text: str) -> str:
    if not text:
        return ""
    low = min(int(float(text)) // 20 * 20, 80)
    return "80 or more" if low == 80 else f"{low} to {low + 19}"


@pytest.mark.parametrize("seed", range(2))
def test_groups_against_a_loop(seed: int) -> None:
    table, labels, scores = random_set(seed)
    limits = [0.5, 0.8]
    found = subgroup_metrics(table, labels, scores, limits, ["a", "b"], num_bootstraps=15)
    assert list(found) == ["sex", "age", "view", "manufacturer"]
    groups = {"sex": table["sex"], "age": table["age"].map(age_band), "view": table["view"]}
    for name, members in groups.items():
        unknown = int((members == "").sum())
        assert found[name].get("unknown", {"images": 0}) == {"images": unknown}
        assert set(found[name]) - {"unknown"} == set(members) - {""}
        for group in set(members) - {""}:
            check_group(
                found[name][group],
                *(each[members.to_numpy() == group] for each in (table, labels, scores)),
            )
    assert found["manufacturer"] == {"unknown": {"images": len(table)}}


def check_group(
    entry: dict[str, Any], table: pd.DataFrame, labels: np.ndarray, scores: np.ndarray
) -> None:
    weights = patient_weights(table["patient_id"].tolist(), 15).astype(int)
    values, samples = [], []
    for number, (name, limit) in enumerate([("a", 0.5), ("b", 0.8)]):
        known = ~np.isnan(labels[:, number])
        truth, score = labels[known, number].astype(int), scores[known, number]
        of_class = entry["per_class"][name]
        counts = int(truth.sum()), int((1 - truth).sum())
        assert (of_class["num_positive"], of_class["num_negative"]) == counts
        if min(counts) < FEWEST_IMAGES:
            assert math.isnan(of_class["auc"])
            continue
        values.append(naive(truth, score, limit))
        drawn = [naive(truth.repeat(w[known]), score.repeat(w[known]), limit) for w in weights]
        samples.append(drawn)
        compare(of_class, values[-1], np.array(drawn))
    assert entry["images"] == len(table)
    assert entry["num_classes"] == len(values)
    if values:
        compare(entry, np.mean(values, axis=0), np.mean(samples, axis=0))
    else:
        assert math.isnan(entry["auc"])


def compare(entry: dict[str, Any], values: Any, samples: np.ndarray) -> None:
    for number, name in enumerate(("auc", "sensitivity", "specificity")):
        assert entry[name] == pytest.approx(values[number])
        expected = np.nanquantile(samples[:, number], [0.025, 0.975])
        assert entry[f"{name}_interval"] == pytest.approx(expected.tolist())


def test_no_threshold_and_no_intervals() -> None:
    table, labels, scores = random_set(0)
    entry = subgroup_metrics(table, labels, scores, [math.nan, 0.5], ["a", "b"], num_bootstraps=0)[
        "view"
    ]["PA"]
    assert "auc_interval" not in entry
    assert entry["per_class"]["a"]["auc"] > 0.5
    assert math.isnan(entry["per_class"]["a"]["sensitivity"])
    assert entry["per_class"]["b"]["sensitivity"] > 0
    assert math.isnan(entry["sensitivity"])  # of both classes it is not known
