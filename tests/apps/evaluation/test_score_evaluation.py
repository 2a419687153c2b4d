# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""From one row per image to all figures: against scikit-learn, loops and tables by hand."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from monai_afire.apps.evaluation import evaluate_scores, patient_weights
from monai_afire.apps.evaluation.score_evaluation import CALIPER

SCORES = ["fused", "eq_51"]
AT_THRESHOLD = ("accuracy", "f1", "sensitivity", "specificity")


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


def evaluated(table: pd.DataFrame, caliper: float = CALIPER, **arguments: Any) -> dict[str, Any]:
    """The figures, after a check that they are valid JSON and come back from it as they are."""
    if "brightness" in table:  # in another unit, so that pairs may differ by more
        table = table.assign(brightness=table["brightness"] * (CALIPER / caliper))
    metrics = evaluate_scores(table, **{"score_names": SCORES, "num_bootstraps": 5, **arguments})
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
    return metrics


def originals(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["kind"] == ""]


def counted_auc(abnormal: Any, normal: Any) -> float:
    pairs = list(itertools.product(abnormal, normal))
    return sum((a > n) + 0.5 * (a == n) for a, n in pairs) / len(pairs)


# ---- detection


def test_detection_by_hand() -> None:
    table = pd.DataFrame(
        {"label": [0, 0, 1, 1], "fused": [0.1, 0.4, 0.35, 0.8], "brightness": [0.5, 0.6, 0.5, 0.1]}
    )
    metrics = evaluated(table, score_names=["fused"], thresholds={"fused": 0.35}, caliper=0.2)
    assert metrics["images"] == {"normal": 2, "abnormal": 2}
    row = metrics["detection"]["fused"]
    assert row["auc"] == 0.75
    assert row["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert [row[name] for name in AT_THRESHOLD] == [0.75, 0.8, 1.0, 0.5]
    assert metrics["detection"]["darkness"]["auc"] == (1 + 1 + 1 + 0.5) / 4
    # the dark abnormal image has no partner, the other one's is the first normal one
    assert metrics["matched_pairs"]["pairs"] == 1
    assert metrics["matched_pairs"]["fused"]["auc"] == 1.0
    assert metrics["matched_pairs"]["darkness"]["auc"] == 0.5


def test_exposure_baselines_stand_beside_the_scores() -> None:
    table = random_table()
    detection = evaluated(table)["detection"]
    assert list(detection) == [*SCORES, "darkness", "sharpness"]
    images = originals(table)
    abnormal, normal = images[images["label"] == 1], images[images["label"] == 0]
    assert detection["darkness"]["auc"] == pytest.approx(
        1 - counted_auc(abnormal["brightness"], normal["brightness"])
    )
    assert detection["sharpness"]["auc"] == pytest.approx(
        counted_auc(abnormal["sharpness"], normal["sharpness"])
    )


@pytest.mark.parametrize("threshold", [np.nan, np.inf, -np.inf])
def test_odd_thresholds_are_no_number_in_json(threshold: float) -> None:
    row = evaluated(random_table(), thresholds={"fused": threshold})["detection"]["fused"]
    assert row["threshold"] is None
    assert row["sensitivity"] == (None if np.isnan(threshold) else float(threshold < 0))


# ---- intervals


def test_intervals_are_over_patients_that_are_drawn() -> None:
    table = originals(random_table()).drop(columns=["brightness", "sharpness"])
    patients = table["patient_id"] = np.arange(len(table)) // 2
    found = evaluated(table, thresholds={"fused": 0.3}, num_bootstraps=40)["detection"]
    aucs = []
    for drawn in patient_weights(patients, 40).astype(int):
        sample = table.loc[table.index.repeat(drawn)]
        positive = sample["label"] == 1
        aucs.append(counted_auc(sample["fused"][positive], sample["fused"][~positive]))
    assert found["fused"]["auc_interval"] == pytest.approx(np.quantile(aucs, [0.025, 0.975]))


# ---- what is left without exposure


@pytest.mark.parametrize("seed", range(3))
def test_within_view_equals_a_loop(seed: int) -> None:
    table = random_table(seed)
    within = evaluated(table)["within_view"]
    assert list(within) == ["AP", "PA"]  # unknown views are no view
    for view in within:
        rows = [
            row for row in table.to_dict("records") if row["view"] == view and row["kind"] == ""
        ]
        for name, sign in (("fused", 1), ("eq_51", 1), ("darkness", -1)):
            column = "brightness" if name == "darkness" else name
            abnormal = [sign * row[column] for row in rows if row["label"]]
            normal = [sign * row[column] for row in rows if not row["label"]]
            assert within[view]["auc"][name] == pytest.approx(counted_auc(abnormal, normal))
        assert within[view]["images"] == {"normal": len(normal), "abnormal": len(abnormal)}


def test_without_a_pair_nothing_is_claimed() -> None:
    table = originals(random_table()).assign(brightness=lambda t: t["label"].astype(float))
    metrics = evaluated(table)
    assert metrics["matched_pairs"]["pairs"] == 0
    assert metrics["matched_pairs"]["fused"] == {"auc": None, "auc_interval": [None, None]}


# ---- lesions


def test_localization_is_the_mean_over_the_images_that_have_it() -> None:
    table = random_table()
    found = evaluated(table)["localization"]
    rows = [row for row in originals(table).to_dict("records") if row["label"]]
    expected = {
        name: np.mean([row[f"{name}_fused"] for row in rows])
        for name in ("pixel_auroc", "pointing")
    }
    assert found == {
        "fused": {"images": len(rows), **{name: pytest.approx(v) for name, v in expected.items()}}
    }


def test_controlled_images_are_compared_with_the_same_originals() -> None:
    table = random_table()
    half = {f"{number}.png" for number in range(20)}
    # one kind on some of the images only
    table = table[(table["kind"] != "CutPaste") | table["image"].isin(half)]
    controlled = evaluated(table)["controlled"]
    assert sorted(controlled) == [
        f"{k}, contrast {c}, size 0.2" for k in ("CutPaste", "SoftNodule") for c in (0.1, 0.4)
    ]
    records = table.to_dict("records")
    for entry in controlled.values():
        copies = [
            row
            for row in records
            if row["kind"] == entry["kind"] and row["contrast"] == entry["contrast"]
        ]
        before = [
            row
            for row in records
            if not row["kind"] and row["image"] in {copy["image"] for copy in copies}
        ]
        assert entry["images"] == len(copies) == len(before)
        assert entry["size"] == 0.2
        for name in SCORES:
            expected = counted_auc([row[name] for row in copies], [row[name] for row in before])
            assert entry["auc"][name] == pytest.approx(expected)
        mean = np.mean([row["pixel_auroc_fused"] for row in copies])
        assert entry["localization"]["fused"]["pixel_auroc"] == pytest.approx(mean)


def test_painted_copies_count_in_nothing_else() -> None:
    table = random_table()
    with_copies, without = evaluated(table), evaluated(originals(table))
    assert without.get("controlled") is None
    assert {name: value for name, value in with_copies.items() if name != "controlled"} == without


# ---- tables that lack something


def test_scores_that_are_no_numbers_are_an_error() -> None:
    table = random_table()
    table.loc[0, "fused"] = np.nan
    with pytest.raises(ValueError, match=r"index \[0\] are NaN"):
        evaluated(table)


def test_an_exposure_that_is_not_known_of_every_image_is_no_baseline() -> None:
    table = random_table()
    table.loc[0, "brightness"] = np.nan
    metrics = evaluated(table)
    assert "darkness" not in metrics["detection"]
    assert "matched_pairs" not in metrics


@pytest.mark.parametrize("with_copies", [True, False])
def test_csv_file_gives_the_same_figures(with_copies: bool) -> None:
    table = random_table() if with_copies else originals(random_table())
    text = table.to_csv(index=False)
    assert evaluated(pd.read_csv(io.StringIO(text))) == evaluated(table)


def test_images_of_one_patient_have_no_interval() -> None:
    table = pd.DataFrame({"label": [0, 0, 1, 1], "fused": [0.1, 0.4, 0.35, 0.8]})
    metrics = evaluate_scores(table.assign(patient_id="a"), ["fused"], num_bootstraps=10)
    assert metrics["num_patients"] == 1
    assert metrics["detection"]["fused"]["auc"] == 0.75
    assert metrics["detection"]["fused"]["auc_interval"] == [None, None]
    assert "num_patients" not in evaluate_scores(table, ["fused"], num_bootstraps=10)
