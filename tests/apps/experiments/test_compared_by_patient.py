# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Initializations compared by patient, and frozen arms beside fine-tuned ones."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_bundle import write_bundle
from sklearn.metrics import roc_auc_score

from monai_afire.apps.evaluation.patient_bootstrap import patient_weights
from monai_afire.apps.experiments.execution import Outcome
from monai_afire.apps.experiments.experiment_tables import comparison_markdown, comparison_table
from monai_afire.apps.experiments.paired_patients import patient_p_values
from monai_afire.apps.experiments.plan import Experiment, Run, plan_runs

COUNT = 80


def predictions(quality: float, seed: int) -> pd.DataFrame:
    """Of images with the same labels in every run; the order of the rows differs."""
    fixed = np.random.default_rng(0)
    rng = np.random.default_rng(100 * seed + int(10 * quality))
    labels = fixed.choice([0.0, 1.0, np.nan, -1.0], (COUNT, 2), p=[0.5, 0.4, 0.05, 0.05])
    patients = fixed.integers(0, 30, COUNT)
    scores = rng.normal(size=(COUNT, 2)) + quality * (labels == 1)
    table = pd.DataFrame(
        {"image": [f"{number}.png" for number in range(COUNT)], "patient_id": patients}
    )
    for number, name in enumerate("ab"):
        table[f"label_{name}"], table[f"probability_{name}"] = labels[:, number], scores[:, number]
    return table.sample(frac=1, random_state=seed + 1)


def experiment_of(
    folder: Path, tables: dict[Run, pd.DataFrame]
) -> tuple[Experiment, list[Outcome]]:
    experiment = Experiment((write_bundle(folder),), folder / "results")
    for run, table in tables.items():
        experiment.folder(run).mkdir(parents=True)
        table.to_csv(experiment.folder(run) / "predictions.csv", index=False)
    return experiment, [Outcome(run, "done") for run in tables]


def naive_p(pairs: list[tuple[pd.DataFrame, pd.DataFrame]], num_samples: int) -> float:
    """The images of each sample really repeated, AUCs by scikit-learn."""
    patients = [patient for first, _ in pairs for patient in first["patient_id"]]
    weights = patient_weights(patients, num_samples).astype(int)
    signs = []
    for row in weights:
        differences, start = [], 0
        for first, second in pairs:
            counts = dict(zip(first["image"], row[start : start + len(first)], strict=True))
            start += len(first)
            means = []
            for table in (first, second):
                aucs = []
                for name in "ab":
                    known = table[table[f"label_{name}"].isin([0, 1])]
                    repeated = known.loc[known.index.repeat(known["image"].map(counts))]
                    if repeated[f"label_{name}"].nunique() == 2:
                        aucs.append(
                            roc_auc_score(
                                repeated[f"label_{name}"], repeated[f"probability_{name}"]
                            )
                        )
                means.append(np.mean(aucs))
            differences.append(means[1] - means[0])
        signs.append(np.mean(differences))
    rarer = min(sum(sign <= 0 for sign in signs), sum(sign >= 0 for sign in signs))
    return min(1.0, 2 * (rarer + 1) / (num_samples + 1))


def only_p(folder: Path, first: pd.DataFrame, second: pd.DataFrame, **overrides: str) -> float:
    experiment, outcomes = experiment_of(
        folder, {Run("a", None, 0): first, Run("b", None, 0): second}
    )
    experiment = dataclasses.replace(experiment, overrides=overrides)
    return patient_p_values(experiment, outcomes, num_samples=50)["patient_p_value"][0]


def test_an_image_that_is_listed_twice_counts_once(tmp_path: Path) -> None:
    first, second = predictions(0.6, 0), predictions(1.1, 0)
    twice = [pd.concat([table, table[table["image"] == "3.png"]]) for table in (first, second)]
    assert only_p(tmp_path / "a", *twice) == only_p(tmp_path / "b", first, second)


def test_uncertain_labels_count_as_the_runs_count_them(tmp_path: Path) -> None:
    first, second = predictions(0.6, 0), predictions(0.8, 0)
    resolved = [table.replace({"label_a": -1, "label_b": -1}, 1) for table in (first, second)]
    expected = only_p(tmp_path / "a", *resolved)
    assert only_p(tmp_path / "b", first, second, uncertain="ones") == expected
    assert only_p(tmp_path / "c", first, second) != expected
    experiment, outcomes = experiment_of(
        tmp_path / "d", {Run("a", None, 0): first, Run("b", None, 0): second}
    )
    config = Path(experiment.config_files[0])
    config.write_text(json.dumps({**json.loads(config.read_text()), "uncertain": "ones"}))
    assert patient_p_values(experiment, outcomes, num_samples=50)["patient_p_value"][0] == expected


@pytest.mark.parametrize("names", [("None", "mild"), ("0", "1"), ("low", "high")])
def test_names_of_classes_stay_text(tmp_path: Path, names: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 2, COUNT)

    def graded(quality: float) -> pd.DataFrame:
        high = rng.normal(size=COUNT) + quality * grades
        patients = [f"00{number % 30}" for number in range(COUNT)]
        columns = {"image": [f"{number}.png" for number in range(COUNT)], "patient_id": patients}
        columns |= {"label": [names[grade] for grade in grades]}
        return pd.DataFrame(
            {**columns, f"probability_{names[0]}": -high, f"probability_{names[1]}": high}
        )

    assert 0 < only_p(tmp_path, graded(0.0), graded(2.0)) < 0.1


@pytest.mark.parametrize("quality", [0.6, 1.1])
def test_p_by_patient_against_a_loop(tmp_path: Path, quality: float) -> None:
    runs = {
        Run(name, None, seed): predictions(q, seed)
        for name, q in (("a", 0.6), ("b", quality))
        for seed in (0, 1)
    }
    experiment, outcomes = experiment_of(tmp_path, runs)
    found = patient_p_values(experiment, outcomes, num_samples=30)
    assert found[["metric", "initialization"]].to_numpy().tolist() == [["mean_auc", "b"]]
    assert math.isnan(found["label_fraction"][0])
    pairs = [(runs[Run("a", None, seed)], runs[Run("b", None, seed)]) for seed in (0, 1)]
    assert found["patient_p_value"][0] == pytest.approx(naive_p(pairs, 30))


def test_a_clear_difference_and_none(tmp_path: Path) -> None:
    runs = {
        Run(name, None, 0): predictions(q, 0)
        for name, q in (("chance", 0.0), ("same", 0.0), ("good", 3.0))
    }
    experiment, outcomes = experiment_of(tmp_path, runs)
    found = patient_p_values(experiment, outcomes).set_index("initialization")["patient_p_value"]
    assert found["same"] == 1
    assert found["good"] < 0.01


def test_only_partners_are_compared(tmp_path: Path) -> None:
    half = predictions(1.0, 0).iloc[:40]
    runs = {
        Run("a", None, 0, 0.1): predictions(0.5, 0),
        Run("b", None, 0, 1.0): predictions(0.5, 0),  # another fraction
        Run("c", None, 1, 0.1): predictions(0.5, 0),  # another seed
        Run("d", None, 0, 0.1): half,  # other images
        Run("e", None, 0, 0.1): predictions(2.0, 0),
    }
    experiment, outcomes = experiment_of(tmp_path, runs)
    outcomes.append(Outcome(Run("f", None, 0, 0.1), "failed"))
    found = patient_p_values(experiment, outcomes, 20)
    assert found[["initialization", "label_fraction"]].to_numpy().tolist() == [["e", 0.1]]


def test_exclusive_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = rng.choice(["x", "y", ""], 60)
    patients = np.arange(60)
    tables = {}
    for name, quality in (("a", 0.0), ("b", 3.0)):
        score = rng.normal(size=60) + quality * (label == "y")
        table = pd.DataFrame({"image": patients, "patient_id": patients, "label": label})
        tables[Run(name, None, 0)] = table.assign(probability_x=-score, probability_y=score)
    experiment, outcomes = experiment_of(tmp_path, tables)
    assert patient_p_values(experiment, outcomes, 200)["patient_p_value"][0] < 0.02


def test_the_table_shows_it() -> None:
    runs = pd.DataFrame(
        {"initialization": ["a", "b"], "label_fraction": np.nan, "seed": 0, "mean_auc": [0.5, 0.6]}
    )
    found = pd.DataFrame(
        {
            "metric": ["mean_auc"],
            "initialization": ["b"],
            "label_fraction": [np.nan],
            "patient_p_value": [0.03],
        }
    )
    text = comparison_markdown(comparison_table(runs, ["mean_auc"]).merge(found, how="left"))
    assert "| b | 0.600 (1), p = n/a, 1 of 1 higher, by patient p = 0.030 |" in text
    assert "| a | 0.500 (1) |" in text


def test_frozen_arms_beside_the_others(tmp_path: Path) -> None:
    weights = tmp_path / "model.pt"
    weights.write_bytes(b"weights")
    runs = plan_runs([("scratch", None), ("mine", str(weights))], [0, 1], frozen=True)
    assert [run.initialization for run in runs[:4]] == [
        "scratch",
        "mine",
        "scratch-frozen",
        "mine-frozen",
    ]
    assert len({run.name for run in runs}) == 8
    assert runs[3].overrides() == {**runs[1].overrides(), "network_def::freeze_encoder": True}
    assert runs[2].overrides() == {**runs[0].overrides(), "network_def::freeze_encoder": True}
    experiment = Experiment(
        (write_bundle(tmp_path),), tmp_path, {"network_def::freeze_encoder": "false"}
    )
    training = experiment.steps(runs[3])["training"]
    assert training[training.index("--network_def::freeze_encoder") + 1] == "True"
    assert "--network_def::freeze_encoder" not in experiment.steps(runs[3])["evaluation"]
