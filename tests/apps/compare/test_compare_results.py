# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The table: pairs on the same patients, the best baseline, what is better, and the sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from monai_afire.apps.compare import Cohort
from monai_afire.apps.compare.results import results_table, verdict
from monai_afire.apps.evaluation.patient_bootstrap import patient_weights


@pytest.fixture
def cohort() -> Cohort:
    """Sixty evaluated images of thirty patients."""
    labels = np.random.default_rng(0).integers(0, 2, (60, 1)).astype(np.float32)
    table = pd.DataFrame(
        {"role": "evaluate", "patient": [f"p{n // 2}" for n in range(60)], "abnormal": labels[:, 0]}
    )
    return Cohort([], table, labels, ["finding"])


def scores(cohort: Cohort, signal: float, seed: int, draws: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(draws, 60, 1))
    return signal * cohort.labels + noise


def test_differences_are_of_the_same_patients_and_against_the_best_baseline(cohort: Cohort) -> None:
    mine, pixels = scores(cohort, 1.0, 1, draws=3), scores(cohort, 0.5, 2)
    answers = [
        ("Detection", "a", "darkness", scores(cohort, -1.0, 3)),
        ("Detection", "a", "pixels", pixels),
        ("Detection", "a", "mine", mine),
    ]
    row = results_table(cohort, answers, draws=30).set_index("name").loc["mine"]
    truth, patients = cohort.labels[:, 0], cohort.table["patient"].to_numpy()

    def auc(values: np.ndarray, rows: list[int]) -> float:
        return float(np.mean([roc_auc_score(truth[rows], own[rows, 0]) for own in values]))

    weights = patient_weights(patients, 30).astype(int)
    samples = [[row for row in range(60) for _ in range(drawn[row])] for drawn in weights]
    differences = np.array([auc(mine, rows) - auc(pixels, rows) for rows in samples])
    everything = list(range(60))
    assert row["baseline"] == "pixels"
    assert row["auc"] == pytest.approx(auc(mine, everything))
    assert row["difference"] == pytest.approx(auc(mine, everything) - auc(pixels, everything))
    assert row["p_value"] == pytest.approx(
        min(1, 2 * (min((differences <= 0).sum(), (differences >= 0).sum()) + 1) / 31)
    )
    assert [row["low"], row["high"]] == pytest.approx(
        np.quantile([auc(mine, rows) for rows in samples], [0.025, 0.975])
    )


def test_only_clear_and_positive_differences_are_better(cohort: Cohort) -> None:
    pixels = scores(cohort, 0.3, 2)
    arms = {"clear": scores(cohort, 9.0, 1), "equal": pixels, "worse": scores(cohort, -9.0, 1)}
    answers = [("Detection", "a", name, own) for name, own in {"pixels": pixels, **arms}.items()]
    table = results_table(cohort, answers, draws=200)
    assert table.loc[table["better"], "name"].tolist() == ["clear"]
    assert "clear is better than pixels" in verdict(table, 60)
    assert "no encoder is better" in verdict(table[table["name"] != "clear"], 60)


def test_what_is_not_defined_is_left_out(cohort: Cohort) -> None:
    unknown = Cohort([], cohort.table.assign(abnormal=np.nan), cohort.labels, ["finding"])
    answers = [
        (question, "a", name, scores(cohort, 1.0, 0))
        for question in ("Detection", "Linear probe")
        for name in ("pixels", "mine")
    ]
    assert set(results_table(unknown, answers, draws=5)["question"]) == {"Linear probe"}


@pytest.mark.parametrize(("patients", "rarer", "enough"), [(29, 14, 0), (30, 5, 0), (30, 6, 1)])
def test_few_patients_have_no_p_and_the_sentence_says_so(
    patients: int, rarer: int, enough: int
) -> None:
    labels = (np.arange(patients) < rarer).astype(np.float32)[:, None]
    table = pd.DataFrame({"role": "evaluate", "patient": range(patients), "abnormal": labels[:, 0]})
    cohort = Cohort([], table, labels, ["finding"])
    answers = [
        ("Detection", "a", "pixels", np.random.default_rng(0).random((1, patients, 1))),
        ("Detection", "a", "perfect", labels[None]),
    ]
    found = results_table(cohort, answers, draws=100)
    sentence = verdict(found, patients)
    assert found["p_value"].notna().sum() == enough
    assert found["better"].any() == bool(enough)
    assert ("too few patients" in sentence) == (not enough)
    assert ("perfect is better" in sentence) == bool(enough)
