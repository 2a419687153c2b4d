# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run whose weights are asked for by a wrong name."""

from __future__ import annotations

from pathlib import Path

import pytest

from monai_afire_cli.bundles.bundle import bundles_folder
from monai_afire_cli.options.overrides import wrong_options
from monai_afire_cli.runs.run_records import begin_run


def problem(bundle: str, word: str, *configs: str) -> str:
    """What is wrong with --weights_of, "" for nothing."""
    files = [bundles_folder() / bundle / "configs" / f"{name}.json" for name in configs]
    return "".join(wrong_options(files, ["--weights_of", word]))


def write_weights(run: Path) -> None:
    """The file that a training ends with."""
    (run / "models").mkdir()
    (run / "models/model.pt").touch()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seven runs, of which the one with the largest number is the newest."""
    monkeypatch.chdir(tmp_path)
    for number in range(7):
        folder = tmp_path / f"runs/afire/ward_{number}"
        folder.mkdir(parents=True)
        begin_run(folder, {"step": "train"})
    (tmp_path / "runs/afire/no_run").mkdir()
    return tmp_path


@pytest.mark.parametrize("word", ["releasd", "released", "Released"])
def test_the_released_weights_need_no_name(runs: Path, word: str) -> None:
    assert "leave --weights_of out" in problem("afire", word, "inference")
    found = problem("afire", word, "train", "finetune_anomaly")
    assert "--encoder_weights released" in found
    for configs in (["inference"], ["train", "evaluate"]):
        found = problem("radiograph_landmarks", word, *configs)
        assert "no released weights" in found
        assert "encoder" not in found


def test_the_newest_runs_are_named_and_the_others_counted(runs: Path) -> None:
    found = problem("afire", "nothing_like_it", "inference")
    assert "there: ward_6, ward_5, ward_4, ward_3, ward_2 and 2 more)" in found
    assert "did you mean" not in found
    assert "did you mean 'ward_1'?" in problem("afire", "ward1", "inference")
    assert "there: none" in problem("mae", "nothing_like_it", "inference")


def test_runs_and_paths_that_are_there_are_no_problem(runs: Path) -> None:
    (runs / "own.pt").touch()
    (runs / "runs/afire/released").mkdir()
    for folder in ("ward_0", "released"):
        write_weights(runs / "runs/afire" / folder)
    for word in ("ward_0", "own.pt", "runs/afire/ward_0", "released", "null"):
        assert problem("afire", word, "inference") == ""
    assert problem("afire", "latest", "train", "finetune_anomaly") == ""


@pytest.mark.parametrize("word", ["runs/afire", "runs/afire/"])
def test_a_folder_of_runs_is_named_as_one(runs: Path, word: str) -> None:
    found = problem("afire", word, "inference")
    assert "is a folder of runs; none of them has weights" in found
    assert found.endswith("to make some: monai-afire run afire train finetune_anomaly")
    write_weights(runs / "runs/afire/ward_3")
    found = problem("afire", word, "inference")
    assert "runs/afire is a folder of runs; take runs/afire/latest" in found
    assert found.endswith("ward_3")
    assert problem("afire", "runs/afire/latest", "inference") == ""  # the newest one with weights


def test_a_run_without_weights_is_refused_with_those_that_have_some(runs: Path) -> None:
    write_weights(runs / "runs/afire/ward_3")
    for word in ("ward_0", "runs/afire/ward_0"):
        found = problem("afire", word, "inference")
        assert "ward_0: this run (of the step 'train') has no weights" in found
        assert found.endswith("runs/afire: ward_3")
    assert "no_run: this folder has no weights" in problem("afire", "no_run", "inference")


def test_no_latest_run_with_fitting_weights_names_the_command_that_makes_some(runs: Path) -> None:
    found = problem("mae", "latest", "inference")
    assert "no run in" in found
    assert found.endswith("monai-afire run mae train")
    write_weights(runs / "runs/afire/ward_3")
    found = problem("afire", "latest", "inference")  # a detector, which no pre-training makes
    assert "(others have: ward_3)" in found
    assert found.endswith("monai-afire run afire train finetune_anomaly")
    begin_run(runs / "runs/afire/ward_3", {"step": "anomaly"})
    assert problem("afire", "latest", "inference") == ""
