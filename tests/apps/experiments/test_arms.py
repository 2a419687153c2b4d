# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_bundle
import pandas as pd
import pytest

from monai_afire.apps.experiments import execution
from monai_afire.apps.experiments.__main__ import main
from monai_afire.apps.experiments.plan import ExperimentError, Pretraining, read_arms

ARMS: dict[str, Any] = {"full": {}, "ablated": {"weight": 0, "text": "a b"}, "untrained": None}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bundle that pre-trains and trains, run by a program that starts in no time."""
    monkeypatch.setattr(execution, "_COMMAND", (sys.executable, "-S", "-E", fake_bundle.__file__))
    return fake_bundle.write_bundle(tmp_path)


@pytest.fixture
def run(tmp_path: Path, config: str) -> Callable[..., int]:
    def run(*words: str, arms: dict[str, Any] = ARMS) -> int:
        overrides = {"epochs": 5, "calls": str(tmp_path / "pretraining.jsonl")}
        content = {"config_file": config, "overrides": overrides, "arms": arms}
        (tmp_path / "arms.json").write_text(json.dumps(content))
        common = [
            "--config_file",
            config,
            "--output_dir",
            str(tmp_path / "results"),
            "--arms",
            str(tmp_path / "arms.json"),
        ]
        return main([*common, "--calls", str(tmp_path / "calls.jsonl"), *words])

    return run


def calls(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_arm_is_pretrained_once_per_seed_and_then_compared(
    run: Callable[..., int], tmp_path: Path
) -> None:
    words = ["--seed", "0", "1", "--label_fraction", "0.1", "1.0", "--num_processes", "2"]
    assert run(*words, "--pretraining::dataset_dir", str(tmp_path)) == 0
    pretrained = calls(tmp_path / "pretraining.jsonl")
    assert sorted(call["folder"] for call in pretrained) == sorted(
        f"{arm}-seed_{seed}" for arm in ("full", "ablated") for seed in (0, 1)
    )
    options = next(call["options"] for call in pretrained if call["folder"] == "ablated-seed_1")
    assert {
        "--weight": "0",
        "--text": "a b",
        "--epochs": "5",
        "--dataset_dir": str(tmp_path),
        "--resume": "True",
    }.items() <= (options.items())
    fine_tuned = calls(tmp_path / "calls.jsonl")
    weights = {
        call["options"]["--encoder_weights"]
        for call in fine_tuned
        if call["folder"].startswith("ablated")
    }
    root = tmp_path / "results" / "pretraining"
    assert weights == {
        (root / f"ablated-seed_{seed}" / "models" / "model.pt").as_posix() for seed in (0, 1)
    }
    assert all("--dataset_dir" not in call["options"] for call in fine_tuned)
    # untrained encoders have the shape of those of the first arm
    untrained = [call["options"] for call in fine_tuned if "untrained" in call["folder"]]
    assert {options["--encoder_def::pretrained"] for options in untrained} == {"False"}
    assert {options["--encoder_weights"] for options in untrained} == {
        (root / f"full-seed_{seed}" / "models" / "model.pt").as_posix() for seed in (0, 1)
    }
    assert all(
        "--encoder_def::pretrained" not in call["options"]
        for call in fine_tuned
        if "full" in call["folder"]
    )
    table = pd.read_csv(tmp_path / "results" / "table.csv")
    assert table["initialization"].unique().tolist() == ["full", "ablated", "untrained"]
    assert set(table["pairs"]) == {0, 2}


def test_only_what_is_missing_is_done_again(run: Callable[..., int], tmp_path: Path) -> None:
    assert run() == 0
    results = tmp_path / "results"
    (results / "runs" / "full-seed_0" / "metrics.json").unlink()
    (
        results / "pretraining" / "ablated-seed_0" / "models" / "model.pt"
    ).unlink()  # its result is known without it
    assert run() == 0
    assert len(calls(tmp_path / "pretraining.jsonl")) == 2
    assert [call["folder"] for call in calls(tmp_path / "calls.jsonl")[6:]] == ["full-seed_0"] * 2
    (results / "runs" / "ablated-seed_0" / "metrics.json").unlink()
    assert run() == 0
    assert [call["folder"] for call in calls(tmp_path / "pretraining.jsonl")][2:] == [
        "ablated-seed_0"
    ]


def test_a_pretraining_with_other_settings_is_not_taken(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    assert run(arms={**ARMS, "ablated": {"weight": 2}}) == 1
    assert "holds a pre-training with other settings: remove it" in capsys.readouterr().err
    assert len(calls(tmp_path / "pretraining.jsonl")) == 2


def test_a_pretraining_that_fails_is_told_and_the_others_go_on(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"broken": "ablated-seed_0", "how": "exit"}
    assert run(arms={**ARMS, "ablated": broken}) == 1
    assert (
        "ablated-seed_0: the pre-training ended with exit status 1: The cause: no such label"
        in capsys.readouterr().err
    )
    status = (
        pd.read_csv(tmp_path / "results" / "runs.csv")
        .set_index("initialization")["status"]
        .to_dict()
    )
    assert status == {"full": "done", "ablated": "failed", "untrained": "done"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "there are no arms"),
        ('{"arms": {}}', "there are no arms"),
        ('{"arms": {"a": {}}}', "arm 'a': no config is given"),
        ('{"config_file": "no.json", "arms": {"a": {}}}', "no config .'no.json'."),
        ('{"arms": {"a": "train.json"}}', "'a' is 'train.json'"),
        ('{"overrides": 3, "arms": {"a": {}}}', "'overrides' is 3"),
        ('{"config_file": "CONFIG", "arms": {"a": {"seed": 1}}}', "arm 'a' sets seed"),
    ],
)
def test_arms_that_cannot_be_read(content: str, message: str, tmp_path: Path, config: str) -> None:
    path = tmp_path / "arms.json"
    path.write_text(content.replace("CONFIG", config))
    with pytest.raises(ExperimentError, match=message):
        read_arms(path, tmp_path)


def test_an_arm_with_its_own_configs(tmp_path: Path, config: str) -> None:
    path = tmp_path / "arms.json"
    path.write_text(json.dumps({"arms": {"a": {"config_file": [config, config], "epochs": 3}}}))
    [arm] = read_arms(path, tmp_path, {"epochs": "4"})
    assert isinstance(arm, Pretraining)
    assert arm.config_files == (config, config)
    assert arm.overrides == (("epochs", "4"),)
    assert ast.literal_eval(arm.arguments(2)[1]) == [config, config]


def test_pretraining_options_need_arms(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--config_file",
        config,
        "--output_dir",
        str(tmp_path),
        "--initializations",
        "a=",
        "--pretraining::epochs",
        "3",
    ]
    assert main(words) == 1
    assert "--pretraining::epochs is for the pre-trainings of --arms" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["afire_components", "equal_time", "untouched_detection"])
def test_plans_of_the_benchmarks_are_read(
    name: str, repository_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository_root)
    arms = read_arms(repository_root / f"tests/benchmarks/plans/{name}.json", tmp_path)
    assert arms[-1] == "untrained"
