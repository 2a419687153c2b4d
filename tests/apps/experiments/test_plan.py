# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_bundle import write_bundle

from monai_afire.apps.experiments.plan import (
    Experiment,
    ExperimentError,
    Run,
    as_initialization,
    plan_runs,
)

SCRATCH = ("scratch", None)


@pytest.fixture
def weights(tmp_path: Path) -> str:
    path = tmp_path / "model.pt"
    path.write_bytes(b"weights")
    return str(path)


def test_every_combination_once_and_partners_by_name(weights: str) -> None:
    runs = plan_runs([SCRATCH, ("afire", weights)], [0, 1, 2], [1.0, 0.01], [0, 3], 5)
    assert len(runs) == len({run.name for run in runs}) == 2 * 3 * 2 * 2
    assert {run.weights for run in runs} == {weights}
    assert {run.is_random for run in runs if run.initialization == "afire"} == {False}
    # partners follow one another, and their names differ in the initialization alone
    for one, other in zip(runs[::2], runs[1::2], strict=True):
        assert one.name.replace("scratch-", "afire-") == other.name
        assert (one.seed, one.fold, one.label_fraction) == (
            other.seed,
            other.fold,
            other.label_fraction,
        )
    assert [run.label_fraction for run in runs] == [0.01] * 12 + [1.0] * 12
    assert runs[0].name == "scratch-label_fraction_0.01-fold_0_of_5-seed_0"


def test_only_what_was_asked_for_is_overridden() -> None:
    assert plan_runs([SCRATCH])[0].overrides() == {"encoder_weights": "null", "seed": 0}
    assert plan_runs([SCRATCH])[0].name == "scratch-seed_0"
    assert Run("a", "w.pt", 3, 0.5, 1, 4).overrides() == {
        "encoder_weights": "w.pt",
        "seed": 3,
        "items::label_fraction": 0.5,
        "items::fold": 1,
        "items::num_folds": 4,
    }


def test_random_weights_are_in_the_encoder_that_they_are_compared_with(weights: str) -> None:
    scratch, trained = plan_runs([SCRATCH, ("afire", weights)])
    assert scratch.overrides() == {**trained.overrides(), "encoder_def::pretrained": False}


def test_an_evaluation_builds_its_network_from_the_file(tmp_path: Path) -> None:
    experiment = Experiment(
        (write_bundle(tmp_path),), tmp_path, {"network_def::freeze_encoder": "true", "epochs": "2"}
    )
    steps = experiment.steps(Run("scratch", None, 1))
    assert "--network_def::freeze_encoder" in steps["training"]
    assert "--network_def::freeze_encoder" not in steps["evaluation"]
    assert "--epochs" in steps["evaluation"]


def test_all_folds_unless_some_are_chosen() -> None:
    assert [run.fold for run in plan_runs([SCRATCH], num_folds=3)] == [0, 1, 2]
    assert [run.fold for run in plan_runs([SCRATCH], folds=[2], num_folds=3)] == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"folds": [0]}, "needs --num_folds"),
        ({"folds": [5], "num_folds": 5}, "they are 0 to 4"),
        ({"folds": [-1], "num_folds": 5}, "they are 0 to 4"),
        ({"num_folds": 2}, "3 folds or more"),
        ({"label_fractions": [0.0]}, "0 < fraction <= 1"),
        ({"label_fractions": [1.5]}, "0 < fraction <= 1"),
        ({"label_fractions": [float("nan")]}, "0 < fraction <= 1"),
        ({"label_fractions": [0.1, 0.1000000001]}, "named twice"),
        ({"seeds": [1, 1]}, "--seed 1 1: one of them is named twice"),
        ({"seeds": []}, "at least one"),
        ({"initializations": []}, "at least one"),
        ({"initializations": [SCRATCH, SCRATCH]}, "--initializations scratch scratch"),
        (
            {"initializations": [SCRATCH, ("scratch-frozen", None)], "frozen": True},
            "none may end with '-frozen'",
        ),
        (
            {"initializations": [("afire", "no/model.pt")]},
            "no file no/model.pt with the weights of 'afire'",
        ),
    ],
)
def test_refuses_plans_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        plan_runs(**{"initializations": [SCRATCH], **arguments})


@pytest.mark.parametrize(
    "text", ["scratch", "=model.pt", "", "a b=", "../up=", ".hidden=", "a/b=model.pt", "-x="]
)
def test_refuses_initializations_of_another_form(text: str) -> None:
    with pytest.raises(ExperimentError, match="write NAME=FILE"):
        as_initialization(text)


@pytest.mark.parametrize("word", ["released", "released_224", "released_cnn"])
def test_a_released_encoder_is_a_file(word: str) -> None:
    name, path = as_initialization(f"mine={word}")
    assert path is not None
    assert Path(path).is_file()
    assert plan_runs([(name, path)])[0].weights == path


def test_a_file_may_have_the_sign_in_its_name() -> None:
    assert as_initialization("a=models/epoch=3.pt") == ("a", "models/epoch=3.pt")


def test_steps_are_training_and_evaluation_with_the_same_overrides(tmp_path: Path) -> None:
    config = write_bundle(tmp_path)
    overlay = str(tmp_path / "paper.json")
    Path(overlay).write_text("{}")
    experiment = Experiment((config, overlay), tmp_path / "results", {"epochs": "2"})
    run = Run("scratch", None, 1, 0.1)
    training, evaluation = experiment.steps(run).values()
    evaluate = str(Path(config).parent / "evaluate.json")
    assert training[0] == evaluation[0] == "--config_file"
    assert ast.literal_eval(training[1]) == [config, overlay]
    assert ast.literal_eval(evaluation[1]) == [config, overlay, evaluate]
    assert evaluation[2:-2] == training[2:]
    options = dict(zip(training[2::2], training[3::2], strict=True))
    folder = f"{tmp_path.as_posix()}/results/runs/scratch-label_fraction_0.1-seed_1"
    assert options == {
        "--output_dir": folder,
        "--encoder_weights": "$None",
        "--seed": "1",
        "--items::label_fraction": "0.1",
        "--epochs": "2",
    }
    assert evaluation[-2:] == ["--ckpt_path", f"{folder}/models/model.pt"]


def test_settings_change_with_all_that_the_result_depends_on(tmp_path: Path, weights: str) -> None:
    config = write_bundle(tmp_path)

    def settings(overrides: Mapping[str, str] | None = None, seed: int = 0) -> dict[str, Any]:
        return Experiment((config,), tmp_path, overrides or {}).settings(
            Run("afire", weights, seed)
        )

    before = settings()
    assert settings({"resume": "true"}) == before
    labels = tmp_path / "labels.json"
    labels.write_text('{"training": []}')
    listed = settings({"datalist": str(labels)})
    assert settings({"datalist": str(labels)}) == listed
    labels.write_text('{"training": [1]}')
    assert settings({"datalist": str(labels)}) != listed
    assert settings({"epochs": "2"}) != before
    assert settings(seed=1) != before
    for path in (weights, config, str(Path(config).parent / "evaluate.json")):
        content = Path(path).read_bytes()
        Path(path).write_bytes(content + b" ")
        assert settings() != before
        Path(path).write_bytes(content)
        assert settings() == before
    os.utime(weights)
    assert settings() == before


def test_refuses_missing_configs_and_its_own_keys(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"no config no/train.json"):
        Experiment(("no/train.json",), tmp_path)
    config = write_bundle(tmp_path)
    with pytest.raises(ExperimentError, match="--items::fold, --output_dir cannot be handed"):
        Experiment((config,), tmp_path, {"items::fold": "1", "output_dir": "models"})
    (Path(config).parent / "evaluate.json").unlink()
    with pytest.raises(ExperimentError, match=r"no config .*evaluate.json"):
        Experiment((config,), tmp_path)
