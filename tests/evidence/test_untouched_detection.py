# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The cross-fitted detector: who is left out, which normal images give the statistics, and what the intervals cover."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tests.evidence.draws_and_patients import both_ways
from tests.evidence.untouched_detection import (
    FOLDS,
    comparison,
    cross_fitted,
    fold_aucs,
    pack,
    pixel_scorer,
    read_aucs,
    untouched_patients,
    with_folds,
)


def made_table(images: int = 200, per_patient: int = 2) -> pd.DataFrame:
    """Images of patients, every third of them abnormal."""
    numbers = np.arange(images)
    table = pd.DataFrame(
        {
            "image": [f"folder/{number}.png" for number in numbers],
            "patient": [f"{number // per_patient:05d}" for number in numbers],
            "view": np.where(numbers % 4 < 3, "PA", "AP"),
            "label": (numbers // per_patient % 3 == 0).astype(int),
        }
    )
    return with_folds(table)


def test_patients_with_a_part_in_a_pretraining_are_left_out(tmp_path: Path) -> None:
    rows = [
        ("00000001_000.png", "00000001", "train", "", ""),
        ("00000001_001.png", "00000001", "train", "adult_normal_7.jpg", ""),
        ("00000002_000.png", "00000002", "train", "", "Normal"),
        ("00000003_000.png", "00000003", "test", "", ""),
        ("00000004_000.png", "00000004", "val", "", "Lung Opacity"),
    ]
    names = ["image", "patient_id", "split", "same_image_in_adult_normals", "rsna_class"]
    listed = pd.DataFrame(rows, columns=names).assign(findings="No Finding", view="PA")
    listed.to_csv(tmp_path / "manifest.csv", index=False)
    assert untouched_patients(tmp_path)["patient"].tolist() == ["00000004"]


def test_a_patient_is_in_one_fold_and_folds_are_even() -> None:
    table = made_table()
    assert (table.groupby("patient")["fold"].nunique() == 1).all()
    assert table.groupby("fold")["patient"].nunique().tolist() == [20] * FOLDS


def test_the_normal_images_of_other_folds_give_the_statistics() -> None:
    table = made_table()
    seen = {}

    def scorer(rows: pd.DataFrame) -> np.ndarray:
        judged = rows[rows["section"] == "judged"]
        training = rows[rows["section"] == "training"]
        assert (training["label"] == 0).all()
        assert not set(training["patient"]) & set(judged["patient"])
        assert len(training) == ((rows["label"] == 0) & (rows["section"] != "judged")).sum()
        seen[len(seen)] = len(judged)
        return judged.index.to_numpy(float)

    assert cross_fitted(table, scorer).tolist() == list(range(200))
    assert len(seen) == FOLDS


def test_pixels_far_from_the_normal_ones_score_high() -> None:
    table = made_table()
    images = torch.rand(200, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    images[torch.tensor(table["label"].to_numpy()) == 1] += 3
    scores = cross_fitted(
        table,
        pixel_scorer(images, lambda normal, x: np.abs(x - normal.mean(0)).mean(1)),
    )
    assert scores[table["label"] == 1].min() > scores[table["label"] == 0].max()


def test_auc_is_the_mean_within_folds() -> None:
    table = made_table()
    scores = np.random.default_rng(1).normal(size=200) + table["label"].to_numpy()
    # a shift of a whole fold changes no comparison within it
    shifted = scores + 100 * table["fold"].to_numpy()
    expected = [
        roc_auc_score(part["label"], scores[part.index]) for _, part in table.groupby("fold")
    ]
    assert fold_aucs(table, shifted)[0] == pytest.approx(np.mean(expected))


def test_intervals_widen_with_the_spread_of_pretrainings() -> None:
    rng = np.random.default_rng(0)
    patients = 0.01 * rng.normal(size=501)
    alike = 0.7 + np.stack([patients] * 5)
    different = alike + np.linspace(-0.1, 0.1, 5)[:, None]
    assert both_ways(different)[0] == pytest.approx(both_ways(alike)[0])
    assert both_ways(different)[1:].std() > 2 * both_ways(alike)[1:].std()


def test_the_table_is_made_from_the_packed_scores(tmp_path: Path) -> None:
    table = made_table(400)
    rng = np.random.default_rng(0)
    signal = {
        "AFiRe-seed_0": 2.0,
        "AFiRe-seed_1": 2.0,
        "pixel neighbors, square": 0.0,
        "untrained-seed_0": 0.1,
        "untrained-seed_1": 0.1,
        "blur": 2.0,
    }
    for name, strength in signal.items():
        scores = rng.normal(size=400) + strength * table["label"].to_numpy()
        np.save(tmp_path / f"{name}.npy", scores)
    pack(tmp_path, table, tmp_path / "scores.npz")
    found = comparison(read_aucs(tmp_path / "scores.npz", "PA"))
    assert found.loc["AFiRe", "runs"] == 2
    assert found.loc["pixel neighbors, square", "p"] < 0.01
    assert np.isnan(found.loc["pixel neighbors, square", "p, Holm"])
    assert found.loc["untrained", "p, Holm"] < 0.01
    assert found.loc["blur", "p"] > 0.05
