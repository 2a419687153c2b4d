# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A bundle repeated: what is compared, what is done again, and what the tables say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from monai_afire.apps.evaluation.patient_bootstrap import patient_weights
from monai_afire.apps.experiments import Job, comparison_table, main, patient_p_values

COUNT = 80
STAND_IN = """
import json, pathlib, sys
words = sys.argv[1:]
first = next(n for n, word in enumerate(words) if word.startswith("--"))
options = dict(zip(words[first::2], words[first + 1 :: 2]))
folder = pathlib.Path(options["--output_dir"])
with open(folder.parents[1] / "calls.txt", "a") as calls:
    calls.write(json.dumps([folder.name, options]) + "\\n")
if options.get("--fails") == folder.name:
    sys.exit("the disk is full")
(folder / "models").mkdir(exist_ok=True)
(folder / "models" / "model.pt").touch()
if words[first - 1].endswith("evaluate.json"):
    value = 0.5 + 0.1 * ("full" in options["--weights"] or "better" in folder.name) + 0.01 * int(options["--seed"])
    text = json.dumps({"mean_auc": value, "num_images": 12, "per_class": {"Mass": {"auc": value}}})
    (folder / "metrics.json").write_text(text)
"""


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configs, and a program in place of ``monai-afire run`` that starts in no time."""
    configs = tmp_path / "bundle" / "configs"
    configs.mkdir(parents=True)
    for name in ("train.json", "evaluate.json"):
        (configs / name).write_text("{}")
    program = tmp_path / "program.py"
    program.write_text(STAND_IN)
    run = subprocess.run

    def run_stand_in(command: list[str], **kwargs: Any) -> Any:
        # the words of the command behind the bundle's name
        return run([command[0], str(program), *command[5:]], **kwargs)

    monkeypatch.setattr(subprocess, "run", run_stand_in)
    return configs / "train.json"


def calls(results: Path) -> list[tuple[str, dict[str, str]]]:
    return [json.loads(line) for line in (results / "calls.txt").read_text().splitlines()]


def command(bundle: Path, *words: str) -> tuple[int, Path]:
    results = bundle.parents[2] / "results"
    results.mkdir(exist_ok=True)
    (results / "calls.txt").write_text("")
    return main(["--config_file", str(bundle), "--output_dir", str(results), *words]), results


def test_every_combination_is_trained_and_evaluated_once(bundle: Path) -> None:
    words = ["--initializations", "scratch=", "better=released", "--seed", "0", "1"]
    words += ["--label_fraction", "0.1", "1.0", "--num_processes", "2"]
    status, results = command(bundle, *words)
    assert status == 0
    assert len(calls(results)) == 16
    table = pd.read_csv(results / "table.csv")
    chosen = table[(table.initialization == "better") & (table.label_fraction == 0.1)]
    assert chosen["difference"].item() == pytest.approx(0.1)
    assert chosen["pairs"].item() == chosen["higher"].item() == 2
    assert (results / "table.md").is_file()
    assert (results / "table.png").is_file()
    assert command(bundle, *words) == (0, results)
    assert calls(results) == []  # nothing is done again


def test_arms_are_pretrained_once_for_each_seed(bundle: Path, tmp_path: Path) -> None:
    arms = tmp_path / "arms.json"
    content = {"config_file": str(bundle), "overrides": {"epochs": 5}}
    arms.write_text(json.dumps({**content, "arms": {"full": {}, "less": {"x": 1}, "random": None}}))
    words = ["--arms", str(arms), "--label_fraction", "0.1", "1", "--pretraining::dataset_dir", "d"]
    status, results = command(bundle, *words)
    assert status == 0
    names = [name for name, _ in calls(results)]
    assert names.count("full-seed_0") == names.count("less-seed_0") == 1
    of = dict(calls(results))
    assert of["less-seed_0"]["--epochs"] == "5"
    assert of["less-seed_0"]["--dataset_dir"] == "d"
    assert Path(of["random-label_fraction_0.1-seed_0"]["--weights"]).name == "model.pt"


def test_a_failed_run_is_named_and_the_others_are_compared(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--initializations", "a=released", "b=latest", "--fails", "b-seed_0"]
    status, results = command(bundle, *words)
    assert status == 1
    assert "b-seed_0" in capsys.readouterr().out
    assert list(pd.read_csv(results / "runs.csv").initialization) == ["a"]
    # a folder of other settings is refused
    assert command(bundle, "--initializations", "a=released", "--epochs", "3")[0] == 1
    assert "a-seed_0" in capsys.readouterr().out


def test_the_tests_are_those_of_scipy() -> None:
    values = {"a": [0.5, 0.6, 0.8], "b": [0.7, 0.75, 0.9]}
    rows = [
        {"initialization": name, "label_fraction": 1.0, "fold": 0.0, "seed": seed, "auc": value}
        for name, of_name in values.items()
        for seed, value in enumerate(of_name)
    ]
    row = comparison_table(pd.DataFrame(rows), ["auc"]).iloc[1]
    welch = stats.ttest_ind(values["a"], values["b"], equal_var=False).pvalue
    assert row["p_value"] == pytest.approx(welch)
    assert row["paired_p_value"] == pytest.approx(stats.ttest_rel(values["a"], values["b"]).pvalue)
    assert row["sd"] == pytest.approx(np.std(values["b"], ddof=1))


def predictions(quality: float, seed: int) -> pd.DataFrame:
    """Of images with the same labels in every run; the order of the rows differs."""
    fixed = np.random.default_rng(0)
    rng = np.random.default_rng(100 * seed + int(10 * quality))
    labels = fixed.choice([0.0, 1.0, np.nan, -1.0], (COUNT, 2), p=[0.5, 0.4, 0.05, 0.05])
    patients = fixed.integers(0, 30, COUNT)
    scores = rng.normal(size=(COUNT, 2)) + quality * (labels == 1)
    table = pd.DataFrame({"image": [f"{n}.png" for n in range(COUNT)], "patient_id": patients})
    for number, name in enumerate("ab"):
        table[f"label_{name}"], table[f"probability_{name}"] = labels[:, number], scores[:, number]
    return table.sample(frac=1, random_state=seed + 1)


def p_by_patient(folder: Path, tables: dict[str, list[pd.DataFrame]], **settings: str) -> float:
    """Of the second of two initializations, each with some seeds."""
    jobs = []
    for name, of_name in tables.items():
        for seed, table in enumerate(of_name):
            facts = {"initialization": name, "label_fraction": None, "fold": None, "seed": seed}
            job = Job(folder / f"{name}{seed}", ["train.json"], settings, facts=facts)
            job.folder.mkdir(parents=True)
            table.to_csv(job.folder / "predictions.csv", index=False)
            jobs.append(job)
    return float(patient_p_values(jobs, num_samples=50)["patient_p_value"].item())


def naive_p(pairs: list[tuple[pd.DataFrame, pd.DataFrame]], num_samples: int) -> float:
    """The images of each sample really repeated, AUCs by scikit-learn."""
    weights = patient_weights([p for one, _ in pairs for p in one["patient_id"]], num_samples)
    signs = []
    for row in weights.astype(int):
        differences, start = [], 0
        for one, other in pairs:
            counts = dict(zip(one["image"], row[start : start + len(one)], strict=True))
            start += len(one)
            means = []
            for table in (one, other):
                aucs = []
                for name in "ab":
                    known = table[table[f"label_{name}"].isin([0, 1])]
                    repeated = known.loc[known.index.repeat(known["image"].map(counts))]
                    truth = repeated[f"label_{name}"]
                    if truth.nunique() == 2:
                        aucs.append(roc_auc_score(truth, repeated[f"probability_{name}"]))
                means.append(np.mean(aucs))
            differences.append(means[1] - means[0])
        signs.append(np.mean(differences))
    rarer = min(sum(sign <= 0 for sign in signs), sum(sign >= 0 for sign in signs))
    return min(1.0, 2 * (rarer + 1) / (num_samples + 1))


def test_p_by_patient_is_that_of_a_naive_bootstrap(tmp_path: Path) -> None:
    tables = {
        name: [predictions(quality, seed) for seed in (0, 1)]
        for name, quality in {"a": 0.6, "b": 1.1}.items()
    }
    expected = naive_p(list(zip(tables["a"], tables["b"], strict=True)), 50)
    assert p_by_patient(tmp_path, tables) == pytest.approx(expected)


def test_uncertain_labels_count_as_the_runs_count_them(tmp_path: Path) -> None:
    first, second = predictions(0.6, 0), predictions(0.8, 0)
    resolved = [table.replace({"label_a": -1, "label_b": -1}, 1) for table in (first, second)]
    expected = p_by_patient(tmp_path / "a", {"a": [resolved[0]], "b": [resolved[1]]})
    given = {"a": [first], "b": [second]}
    assert p_by_patient(tmp_path / "b", given, uncertain="ones") == expected
    assert p_by_patient(tmp_path / "c", given) != expected


def test_names_of_classes_and_patients_stay_text(tmp_path: Path) -> None:
    rng, grades = np.random.default_rng(0), np.arange(COUNT) % 2

    def graded(quality: float) -> pd.DataFrame:
        high = rng.normal(size=COUNT) + quality * grades
        columns = {"image": [f"{n}.png" for n in range(COUNT)]}
        columns |= {"patient_id": [f"00{n % 30}" for n in range(COUNT)]}
        columns |= {"label": [("None", "3")[grade] for grade in grades]}
        return pd.DataFrame({**columns, "probability_None": -high, "probability_3": high})

    assert p_by_patient(tmp_path, {"a": [graded(0.0)], "b": [graded(3.0)]}) < 0.05
