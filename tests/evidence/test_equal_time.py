# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The comparison at equal time: which rate is kept, what is packed, and what the tables find."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from monai_afire.apps.experiments import Pretraining
from tests.evidence.equal_time import (
    RATES,
    arms_table,
    at_rate,
    best_rate,
    compared,
    pack,
    read_aucs,
    report,
    run_name,
)
from tests.evidence.nih_findings import FINDINGS

STRENGTHS = {"AFiRe": 1.5, "MAE": 0.6, "untrained": 0.0}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A list of 400 images of 200 patients, half of them for the test."""
    random = np.random.default_rng(0)
    marks = random.integers(2, size=(400, len(FINDINGS)))
    findings = ["|".join(np.array(FINDINGS)[row == 1]) or "No Finding" for row in marks]
    findings[::2] = ["No Finding"] * 200
    table = pd.DataFrame(
        {
            "image": [f"images/{number}.jpg" for number in range(400)],
            "patient_id": np.arange(400) // 2,
            "split": ["val", "val", "test", "test"] * 100,
            "findings": findings,
        }
    )
    table.to_csv(tmp_path / "manifest.csv", index=False)
    return tmp_path


def write_runs(output: Path, data: Path) -> None:
    """Runs of three methods; the middle rate is the best, and scores follow the findings by the method's strength."""
    folder = output / "runs"
    folder.mkdir(parents=True)
    found = pd.read_csv(data / "manifest.csv")["findings"].str.get_dummies("|")
    labels = found.reindex(columns=list(FINDINGS), fill_value=0).to_numpy()
    random = np.random.default_rng(1)
    shared = random.normal(size=labels.shape)
    for method, strength in STRENGTHS.items():
        rates = (None,) if method == "untrained" else RATES
        seeds = (0, 1, 2) if method == "MAE" else (0, 1)  # of which all methods have two
        for rate, seed in [(rate, seed) for rate in rates for seed in seeds]:
            file = folder / f"{run_name(method, rate, seed)}.npz"
            probe = strength * labels + shared + 0.1 * random.normal(size=labels.shape)
            detector = strength * labels.any(1) + shared[:, 0]
            np.savez(file, probe=probe, detector=detector)
            figure = 0.7 if rate == 1e-3 else 0.6
            row = {"run": file.stem, "probe": figure, "detector": 0.5}
            file.with_suffix(".json").write_text(json.dumps(row))


def write_controls(scores: Path, data: Path) -> None:
    """Scores of the simple controls in another order than the list's."""
    table = pd.read_csv(data / "manifest.csv")
    test = table[table["split"] == "test"][::-1]
    zeros = np.zeros((len(test), len(FINDINGS)))
    np.savez(
        scores / "imagenet.npz", image=test["image"].to_numpy(str), **{"run:pixels_1_0": zeros}
    )
    names = test["image"].str.rsplit("/").str[-1]
    abnormal = (test["findings"] != "No Finding").astype(int)
    rows = {"set": "nih_cxr_7k", "image": names, "pixel neighbors, box": abnormal}
    pd.DataFrame(rows).to_csv(scores / "detector_test.csv", index=False)


def test_a_rate_is_one_setting_and_part_of_the_name() -> None:
    arm = Pretraining("MAE", Path("root"), ("train.json",), (("epochs", "2"),))
    other = at_rate(arm, 3e-4)
    assert other.name == "MAE-rate_0.0003"
    assert dict(other.overrides) == {"epochs": "2", "learning_rate": "0.0003"}


def test_no_rate_is_kept_before_all_are_measured(tmp_path: Path) -> None:
    for number, rate in enumerate(RATES):
        assert best_rate("MAE", tmp_path) is None
        figures = {"probe": 0.6 + 0.01 * number, "detector": 0.7 - 0.03 * number}
        (tmp_path / f"{run_name('MAE', rate, 0)}.json").write_text(json.dumps(figures))
    assert best_rate("MAE", tmp_path) == RATES[0]  # the detector loses more than the probe gains


def test_tables_find_the_stronger_method(tmp_path: Path, data: Path) -> None:
    write_runs(tmp_path / "output", data)
    write_controls(tmp_path, data)
    pack(tmp_path / "output", data, list(STRENGTHS), tmp_path)
    with np.load(tmp_path / "equal_time.npz") as content:
        assert len(content["patient"]) == 200
        # the scores of one rate, over two seeds
        assert {name for name in content.files if name.startswith("probe:MAE")} == {
            "probe:MAE:0",
            "probe:MAE:1",
        }
    assert len(pd.read_csv(tmp_path / "equal_time_validation.csv")) == 17
    found = read_aucs(tmp_path, samples=200)
    assert found["detector"]["pixel neighbors, box"][0, 0] == 1  # aligned by the images' names
    assert arms_table(found)["seeds"].tolist() == [2, 2, 2, 1] * 2
    table = compared(found, [("AFiRe", "MAE"), ("AFiRe", "untrained")])
    assert (table["p, Holm"] < 0.05).all()
    assert table["AUC"].str.startswith("0.").all()
    assert "AFiRe - untrained" in report(tmp_path)
