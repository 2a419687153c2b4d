# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run whose weights are asked for by a wrong name."""

from __future__ import annotations

from pathlib import Path

import pytest

from monai_afire.apps.runs.run_record import begin_run
from monai_afire_cli import bundles_folder
from monai_afire_cli.overrides import wrong_options


def problem(bundle: str, word: str, *configs: str) -> str:
    """What is wrong with --weights_of, "" for nothing."""
    files = [bundles_folder() / bundle / "configs" / f"{name}.json" for name in configs]
    return "".join(wrong_options(files, ["--weights_of", word]))


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
    for word in ("ward_0", "latest", "own.pt", "runs/afire/ward_0", "released", "null"):
        assert problem("afire", word, "inference") == ""
