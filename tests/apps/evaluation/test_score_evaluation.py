# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""From one row per image to all figures: against loops and tables by hand."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from monai_afire.apps.evaluation import evaluate_scores, patient_weights

SCORES = ["fused", "eq_51"]


def random_table(seed: int = 0, count: int = 40) -> pd.DataFrame:
    """Original images, with ties in one score, and painted copies of the normal ones."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % 3 == 0).astype(int)
    table = pd.DataFrame(
        {
            "image": [f"{number}.png" for number in range(count)],
            "label": labels,
            "view": rng.choice(["AP", "PA", ""], count),
            "kind": "",
            "contrast": np.nan,
            "size": np.nan,
            "brightness": rng.random(count) - 0.2 * labels,
            "sharpness": rng.random(count) / 10,
            "fused": rng.normal(size=count) + labels,
            "eq_51": (rng.normal(size=count) + 0.5 * labels).round(),
            "pixel_auroc_fused": np.where(labels == 1, rng.random(count), np.nan),
            "pointing_fused": np.where(labels == 1, rng.integers(0, 2, count), np.nan),
        }
    )
    copies = []
    for kind, contrast in itertools.product(("SoftNodule", "CutPaste"), (0.1, 0.4)):
        copy = table[table["label"] == 0].assign(label=1, kind=kind, contrast=contrast, size=0.2)
        copy["fused"] += 2 * contrast + rng.normal(scale=0.3, size=len(copy))
        copy["pixel_auroc_fused"] = rng.random(len(copy))
        copies.append(copy)
    return pd.concat([table, *copies], ignore_index=True)


def evaluated(table: pd.DataFrame, **arguments: Any) -> dict[str, Any]:
    """The figures, after a check that they are valid JSON and come back from it as they are."""
    metrics = evaluate_scores(table, **{"score_names": SCORES, "num_bootstraps": 5, **arguments})
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
    return metrics


def originals(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["kind"] == ""]


def counted_auc(abnormal: Any, normal: Any) -> float:
    pairs = list(itertools.product(abnormal, normal))
    return sum((a > n) + 0.5 * (a == n) for a, n in pairs) / len(pairs)


def test_detection_by_hand() -> None:
    table = pd.DataFrame(
        {"label": [0, 0, 1, 1], "fused": [0.1, 0.4, 0.35, 0.8], "brightness": [0.5, 0.6, 0.5, 0.1]}
    )
    metrics = evaluated(table, score_names=["fused"], thresholds={"fused": 0.35})
    assert metrics["images"] == {"normal": 2, "abnormal": 2}
    assert "num_patients" not in metrics
    row = metrics["detection"]["fused"]
    at_threshold = [row[name] for name in ("accuracy", "f1", "sensitivity", "specificity")]
    assert at_threshold == [0.75, 0.8, 1.0, 0.5]
    assert row["auc"] == 0.75
    assert row["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert metrics["detection"]["darkness"]["auc"] == (1 + 1 + 1 + 0.5) / 4
    # the dark abnormal image has no partner, the other one's is the first normal one
    assert metrics["matched_pairs"]["pairs"] == 1
    assert metrics["matched_pairs"]["fused"]["auc"] == 1.0
    assert metrics["matched_pairs"]["darkness"]["auc"] == 0.5
    without_pair = evaluated(table.assign(brightness=table["label"]), score_names=["fused"])
    undefined = {"auc": None, "auc_interval": [None, None]}
    assert without_pair["matched_pairs"]["fused"] == undefined


@pytest.mark.parametrize("threshold", [np.nan, np.inf, -np.inf])
def test_odd_thresholds_are_no_number_in_json(threshold: float) -> None:
    row = evaluated(random_table(), thresholds={"fused": threshold})["detection"]["fused"]
    assert row["threshold"] is None
    assert row["sensitivity"] == (None if np.isnan(threshold) else float(threshold < 0))


def test_intervals_are_over_patients_that_are_drawn() -> None:
    table = originals(random_table())
    patients = table["patient_id"] = np.arange(len(table)) // 2
    found = evaluated(table, thresholds={"fused": 0.3}, num_bootstraps=40)
    assert found["num_patients"] == 20
    aucs = []
    for drawn in patient_weights(patients, 40).astype(int):
        sample = table.loc[table.index.repeat(drawn)]
        positive = sample["label"] == 1
        aucs.append(counted_auc(sample["fused"][positive], sample["fused"][~positive]))
    interval = found["detection"]["fused"]["auc_interval"]
    assert interval == pytest.approx(np.quantile(aucs, [0.025, 0.975]))
    one = evaluated(table.assign(patient_id="a"))
    assert one["detection"]["fused"]["auc_interval"] == [None, None]


@pytest.mark.parametrize("seed", range(2))
def test_auc_within_view_and_of_all_equals_a_loop(seed: int) -> None:
    table = random_table(seed)
    metrics = evaluated(table)
    assert list(metrics["detection"]) == [*SCORES, "darkness", "sharpness"]
    assert list(metrics["within_view"]) == ["AP", "PA"]  # unknown views are no view
    columns = {"fused": 1, "eq_51": 1, "brightness": -1, "sharpness": 1}
    for view, found in [("", None), *metrics["within_view"].items()]:
        rows = originals(table)[lambda t, view=view: (t["view"] == view) | (view == "")]
        abnormal, normal = rows[rows["label"] == 1], rows[rows["label"] == 0]
        if found:
            assert found["images"] == {"normal": len(normal), "abnormal": len(abnormal)}
        for column, sign in columns.items():
            name = "darkness" if column == "brightness" else column
            auc = found["auc"][name] if found else metrics["detection"][name]["auc"]
            expected = counted_auc(sign * abnormal[column], sign * normal[column])
            assert auc == pytest.approx(expected)


def test_localization_is_the_mean_over_the_images_that_have_it() -> None:
    rows = originals(random_table()).query("label == 1")
    expected = {name: rows[f"{name}_fused"].mean() for name in ("pixel_auroc", "pointing")}
    found = evaluated(random_table())["localization"]
    assert found == {"fused": pytest.approx({"images": len(rows), **expected})}


def test_controlled_images_are_compared_with_the_same_originals() -> None:
    table = random_table()
    half = {f"{number}.png" for number in range(20)}
    # one kind on some of the images only
    table = table[(table["kind"] != "CutPaste") | table["image"].isin(half)]
    controlled = evaluated(table)["controlled"]
    assert sorted(controlled) == [
        f"{k}, contrast {c}, size 0.2" for k in ("CutPaste", "SoftNodule") for c in (0.1, 0.4)
    ]
    for entry in controlled.values():
        copies = table.query("kind == @entry['kind'] and contrast == @entry['contrast']")
        before = originals(table)[lambda t, copies=copies: t["image"].isin(copies["image"])]
        assert entry["images"] == len(copies) == len(before)
        for name in SCORES:
            expected = counted_auc(copies[name], before[name])
            assert entry["auc"][name] == pytest.approx(expected)
        mean = copies["pixel_auroc_fused"].mean()
        assert entry["localization"]["fused"]["pixel_auroc"] == pytest.approx(mean)
    without = evaluated(originals(table))
    assert without == {name: v for name, v in evaluated(table).items() if name != "controlled"}


def test_scores_that_are_no_numbers_are_an_error() -> None:
    table = random_table()
    table.loc[0, "fused"] = np.nan
    with pytest.raises(ValueError, match="are NaN"):
        evaluated(table)


def test_an_exposure_that_is_not_known_of_every_image_is_no_baseline() -> None:
    table = random_table()
    table.loc[0, "brightness"] = np.nan
    metrics = evaluated(table)
    assert "darkness" not in metrics["detection"]
    assert "matched_pairs" not in metrics


def test_csv_file_gives_the_same_figures() -> None:
    for table in (random_table(), originals(random_table())):
        text = table.to_csv(index=False)
        assert evaluated(pd.read_csv(io.StringIO(text))) == evaluated(table)
