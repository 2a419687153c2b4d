# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fake_bundle
import pandas as pd
import pytest
from fire.parser import DefaultParseValue
from scipy import stats

from monai_afire.apps.experiments import execution
from monai_afire.apps.experiments.__main__ import main
from monai_afire.apps.experiments.execution import execute_runs
from monai_afire.apps.experiments.plan import Experiment, Run, plan_runs


class ExperimentCommand:
    """The command on a folder with the bundle and weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.config = Path(fake_bundle.write_bundle(folder))
        (folder / "model.pt").write_bytes(b"weights")

    def __call__(
        self, *words: str, initializations: Sequence[str] = ("scratch=", "afire=MODEL")
    ) -> int:
        named = [text.replace("MODEL", str(self.folder / "model.pt")) for text in initializations]
        common = [
            "--config_file",
            str(self.config),
            "--output_dir",
            str(self.results),
            "--initializations",
            *named,
        ]
        return main([*common, "--calls", str(self.folder / "calls.jsonl"), *words])

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentCommand:
    """Runs by a program that starts in no time."""
    monkeypatch.setattr(execution, "_COMMAND", (sys.executable, "-S", "-E", fake_bundle.__file__))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return ExperimentCommand(tmp_path)


def test_table_of_all_runs(
    experiment: ExperimentCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        experiment(
            "--seed", "0", "1", "2", "--label_fraction", "1.0", "0.1", "--num_processes", "2"
        )
        == 0
    )
    runs = pd.read_csv(experiment.results / "runs.csv")
    assert len(runs) == 12
    assert set(runs["status"]) == {"done"}
    assert set(runs["num_images"]) == {12}
    table = pd.read_csv(experiment.results / "table.csv")
    # neither the count nor what is not defined
    assert table["metric"].unique().tolist() == ["mean_auc"]
    for fraction in (0.1, 1.0):
        samples = [
            runs.loc[
                (runs["initialization"] == name) & (runs["label_fraction"] == fraction), "mean_auc"
            ]
            for name in ("scratch", "afire")
        ]
        row = table[
            (table["initialization"] == "afire") & (table["label_fraction"] == fraction)
        ].iloc[0]
        assert row["p_value"] == pytest.approx(stats.ttest_ind(*samples, equal_var=False).pvalue)
        assert row["difference"] == pytest.approx(samples[1].mean() - samples[0].mean())
    text = (experiment.results / "table.md").read_text()
    assert "10 % of the labels | 100 % of the labels" in text
    assert text in capsys.readouterr().out
    assert (experiment.results / "table.png").stat().st_size > 10_000
    log = (
        experiment.results / "runs" / "scratch-label_fraction_0.1-seed_2" / "log.txt"
    ).read_text()
    assert log.count("$ python") == 2
    assert "training with $None" in log


def test_only_what_is_missing_is_done_again(experiment: ExperimentCommand) -> None:
    assert experiment("--seed", "0", "1") == 0
    assert len(experiment.calls()) == 8
    (experiment.results / "runs" / "afire-seed_1" / "metrics.json").unlink()
    (
        experiment.results / "runs" / "scratch-seed_0" / "settings.json"
    ).unlink()  # cut off before its end
    assert experiment("--seed", "0", "1", "2", "--resume", "true") == 0
    again = [call["folder"] for call in experiment.calls()[8::2]]
    assert sorted(again) == ["afire-seed_1", "afire-seed_2", "scratch-seed_0", "scratch-seed_2"]
    status = pd.read_csv(experiment.results / "runs.csv").set_index("name")["status"]
    assert status["scratch-seed_1"] == "done before"
    assert status["afire-seed_1"] == "done"


def test_other_settings_are_done_again(experiment: ExperimentCommand) -> None:
    assert experiment() == 0
    assert experiment("--epochs", "3") == 0
    assert len(experiment.calls()) == 8
    assert experiment("--epochs=3") == 0
    assert len(experiment.calls()) == 8
    config = experiment.config
    config.write_text(config.read_text().replace("0.5", "0.6"))
    assert experiment("--epochs", "3") == 0
    assert len(experiment.calls()) == 12


def test_a_checkpoint_of_other_settings_is_not_resumed(experiment: ExperimentCommand) -> None:
    words = ["--resume", "true", "--epochs", "2"]
    assert experiment(*words) == 0
    (
        experiment.results / "runs" / "afire-seed_0" / "settings.json"
    ).unlink()  # cut off before its end
    assert experiment(*words) == 0
    assert experiment(*words[:-1], "3") == 0
    resumed = {(call["folder"], "--resume" in call["options"]) for call in experiment.calls()[:4]}
    assert resumed == {("scratch-seed_0", False), ("afire-seed_0", False)}
    assert [("--resume" in call["options"]) for call in experiment.calls()[4:]] == [
        True,
        True,
    ] + 4 * [False]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit", "the training ended with exit status 1: The cause: no such label"),
        ("kill", "the training was killed by signal 9: "),
        ("nothing", "the evaluation left no metrics.json that can be read"),
        ("garbage", "the evaluation left no metrics.json that can be read"),
    ],
)
def test_a_failure_stops_no_other_run(
    experiment: ExperimentCommand, capsys: pytest.CaptureFixture[str], how: str, reason: str
) -> None:
    words = ["--seed", "0", "1", "--num_processes", "2"]
    assert experiment(*words) == 0
    words += ["--how", how, "--broken", "afire-seed_0"]
    assert experiment(*words) == 1
    errors = capsys.readouterr().err
    assert f"1 of 4 runs failed:\n  afire-seed_0: {reason}" in errors
    runs = pd.read_csv(experiment.results / "runs.csv").set_index("name")
    assert runs["status"].tolist() == ["done", "failed", "done", "done"]
    assert runs.loc["afire-seed_0", "reason"].startswith(reason)
    assert pd.isna(runs.loc["afire-seed_0", "mean_auc"])  # not that of the run before
    assert pd.read_csv(experiment.results / "table.csv")["n"].tolist() == [2, 1]
    assert "(1), p = n/a" in (experiment.results / "table.md").read_text()
    # what failed is tried again, by the same command
    before = len(experiment.calls())
    assert experiment(*words) == 1
    assert {call["folder"] for call in experiment.calls()[before:]} == {"afire-seed_0"}


def test_all_fail(experiment: ExperimentCommand, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--how", "exit", "--broken", "scratch-seed_0", "--metrics", "mean_auc"]
    assert experiment(*words, initializations=["scratch="]) == 1
    assert "1 of 1 runs failed" in capsys.readouterr().err
    assert not (experiment.results / "table.md").exists()


def test_folds_and_nested_metrics(experiment: ExperimentCommand) -> None:
    assert experiment("--num_folds", "3", "--metrics", "per_class::Mass::auc", "num_images") == 0
    options = [call["options"] for call in experiment.calls()]
    assert {(option["--items::fold"], option["--items::num_folds"]) for option in options} == {
        ("0", "3"),
        ("1", "3"),
        ("2", "3"),
    }
    table = pd.read_csv(experiment.results / "table.csv")
    assert table["metric"].unique().tolist() == ["per_class::Mass::auc", "num_images"]
    assert table["n"].tolist() == [3] * 4
    runs = pd.read_csv(experiment.results / "runs.csv")
    assert runs["fold"].tolist() == [0, 0, 1, 1, 2, 2]
    assert (runs["per_class::Mass::auc"] == runs["mean_auc"] / 2).all()


def test_unknown_metric(experiment: ExperimentCommand, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment("--metrics", "mean_dice") == 1
    assert (
        "--metrics mean_dice: not in the metrics.json of any run; there are mean_auc"
        in capsys.readouterr().err
    )
    assert (experiment.results / "runs.csv").exists()


def test_runs_at_the_same_time_share_threads_and_gpus(
    experiment: ExperimentCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert experiment("--seed", "0", "1", "--num_processes", "2", "--sleep", "0.1") == 0
    assert {call["threads"] for call in experiment.calls()} == {"4"}
    assert {call["gpu"] for call in experiment.calls()} == {"4", "6"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert experiment("--seed", "5") == 0
    assert experiment.calls()[-1]["threads"] == "3"
    assert experiment.calls()[-1]["gpu"] == "4,6"  # one process may use them all


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--initializations", "scratch"], "write NAME=FILE"),
        (["--initializations", "afire=no/model.pt"], "no file no/model.pt"),
        (["--epochs"], "'--epochs' is neither an option"),
        (["--epochs", "--lr", "3"], "'--epochs' is neither an option"),
        (["--resume", "true", "stray"], "'stray' is neither an option"),
        (["--lr", "1", "--lr", "2"], "--lr is given twice"),
        (["--encoder_weights", "model.pt"], "--encoder_weights cannot be handed"),
        (["--fold", "1"], "needs --num_folds"),
        (["--num_processes", "0"], "num_processes must be at least 1"),
        (["--config_file", "no/train.json"], "no config no/train.json"),
    ],
)
def test_bad_arguments(
    experiment: ExperimentCommand,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert experiment(*words) == 1
    assert message in capsys.readouterr().err
    assert not (experiment.results / "runs").exists()


def test_a_folder_that_cannot_be_written_to(
    experiment: ExperimentCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.results.write_text("a file")
    assert experiment() == 1
    assert "cannot write to" in capsys.readouterr().err


def test_values_that_look_like_options_of_ours_or_are_negative(
    experiment: ExperimentCommand,
) -> None:
    assert experiment("--met", "a", "--shift", "-1.5", "--net#depth", "3") == 0
    options = experiment.calls()[0]["options"]
    assert (options["--met"], options["--shift"], options["--net#depth"]) == ("a", "-1.5", "3")


def test_processes_end_with_the_experiment(
    experiment: ExperimentCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls.jsonl"
    monkeypatch.setattr(execution, "as_completed", lambda futures: _interrupt_once_running(calls))
    overrides = {"sleep": "60", "calls": str(calls)}
    study = Experiment((str(experiment.config),), experiment.results, overrides)
    with pytest.raises(KeyboardInterrupt):
        execute_runs(
            study, plan_runs([("scratch", None)], seeds=range(6)), num_processes=2, progress=False
        )
    folders = list(experiment.results.glob("runs/*"))
    assert len(folders) == len(experiment.calls()) == 2  # no other run was begun
    for folder in folders:
        assert (folder / "terminated").exists()
        assert not (folder / "settings.json").exists()


def _interrupt_once_running(calls: Path) -> Iterator[None]:
    while not calls.exists() or len(calls.read_text().splitlines()) < 2:
        time.sleep(0.01)
    raise KeyboardInterrupt
    yield


@pytest.mark.parametrize(
    "weights", ["models/a model.pt", "a,b/model.pt", "1.0/model.pt", "[a]/model.pt", "model.pt"]
)
def test_values_arrive_as_they_are(weights: str) -> None:
    overrides = Run("name", weights, 1, 0.01, 2, 5).overrides()
    assert {name: DefaultParseValue(str(value)) for name, value in overrides.items()} == overrides


@pytest.mark.slow
def test_the_command_with_monai_bundle(tmp_path: Path, repository_root: Path) -> None:
    config = fake_bundle.write_bundle(tmp_path)
    words = [
        "--config_file",
        config,
        "--output_dir",
        "results, all",
        "--label_fraction",
        "0.1",
        "--seed",
        "3",
    ]
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "monai_afire.apps.experiments",
            *words,
            "--initializations",
            "scratch=",
            "--quality",
            "0.25",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(repository_root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "| scratch | 0.280 (1) |" in process.stdout
    figures = json.loads(
        (tmp_path / "results, all/runs/scratch-label_fraction_0.1-seed_3/metrics.json").read_text()
    )
    trained_with = {
        "seed": 3,
        "weights": None,
        "quality": 0.25,
        "label_fraction": 0.1,
        "fold": None,
        "num_folds": None,
    }
    assert figures["trained_with"] == trained_with
    assert figures["from_scratch"] is True
    assert figures["seed_seen"] == 3
    assert "1/1" in process.stderr
