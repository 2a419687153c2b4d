# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The check where it stands, in a config's ``initialize``: what MONAI was called with is found and answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from apps.runs.bundle_configs import paths_of
from monai.bundle import ConfigWorkflow, create_workflow

from monai_afire.apps.runs import OptionError, current_call
from tests.bundles.bundle_runs import all_messages, copy_bundles, run_bundle


@pytest.fixture(autouse=True)
def no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Bundles change the process and write where they run."""
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    precision, state = torch.get_float32_matmul_precision(), torch.get_rng_state()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_rng_state(state)


def start(key: str, **options: Any) -> ConfigWorkflow:
    return create_workflow(config_file=paths_of([key]), **options)


def test_texts_are_read_before_anything_refers_to_them() -> None:
    workflow = start("afire/inference", bf16="no", device="cpu", logging_file=False)
    assert workflow.parser.get_parsed_content("inferer").enabled is False
    assert workflow.parser.get_parsed_content("device") == torch.device("cpu")
    json.dumps(workflow.parser.get())  # MLflow stores the config


def test_an_override_of_a_workflow_is_refused() -> None:
    with pytest.raises(RuntimeError) as caught:
        start("peac/train", epoch=3, **{"train::trainer::max_epocs": 3})
    assert isinstance(caught.value.__cause__, OptionError)
    assert "--epoch: there is no such option; did you mean --epochs?" in all_messages(caught.value)
    assert "train::trainer has no 'max_epocs'" in all_messages(caught.value)


def test_overrides_of_a_file_of_arguments_are_refused(tmp_path: Path) -> None:
    arguments = tmp_path / "arguments.json"
    arguments.write_text(json.dumps({"config_file": paths_of(["ace/train"]), "num_classes": 7}))
    with pytest.raises(RuntimeError) as caught:
        create_workflow(args_file=str(arguments))
    assert "--num_classes: nothing reads it in this run" in all_messages(caught.value)


def test_a_workflow_built_without_monais_command_is_checked_too() -> None:
    """As in federated learning, where only the config is known, not what it was overridden with."""
    workflow = ConfigWorkflow(config_file=paths_of(["afire/train"]), epoch=3, epochs="abc")
    with pytest.raises(RuntimeError) as caught:
        workflow.initialize()
    assert "--epoch: there is no such option; did you mean --epochs?" in all_messages(caught.value)
    assert "--epochs: found 'abc'" in all_messages(caught.value)


def test_arguments_of_monai_are_no_options() -> None:
    start(
        "radiograph_landmarks/train",
        run_id="run",
        init_id="initialize",
        logging_file=False,
        workflow_type="train",
    )


def test_entries_that_tracking_adds_are_no_options(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    start(
        "afire/train",
        tracking="mlflow",
        run_name="first",
        output_dir=str(tmp_path),
        logging_file=False,
    )


def test_there_is_no_call_outside_of_a_config() -> None:
    with pytest.raises(RuntimeError, match="checked by an expression in a config"):
        current_call()


@pytest.mark.parametrize("option", ["help", "h"])
def test_help_lists_what_the_run_reads_and_ends(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as caught:
        start("radiograph_classification/train", **{option: True}, epochs=3)
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "\n  --epochs 60                   passes over the training images" in printed
    assert "--num_clusters" not in printed
    assert not list(tmp_path.iterdir())


def run_command(folder: Path, **options: str) -> tuple[subprocess.CompletedProcess, set[Path]]:
    """Run the command of AFiRe's training; returns what it said, and what it wrote or moved."""
    copy_bundles(folder)
    model = folder / "bundles/afire/models/model.pt"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"the good one")
    before = set(folder.rglob("*"))
    done = run_bundle(folder, "bundles/afire/configs/train.json", options)
    return done, set(folder.rglob("*")) ^ before


@pytest.mark.slow
def test_command_refuses_a_misspelt_option_and_writes_nothing(tmp_path: Path) -> None:
    done, changed = run_command(tmp_path, epoch="1")
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("--epoch: there is no such option; did you mean --epochs?")
    )
    assert not changed


@pytest.mark.slow
def test_command_refuses_a_wrong_value_and_writes_nothing(tmp_path: Path) -> None:
    done, changed = run_command(tmp_path, learning_rate="inf", epochs="1.5")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(
        "--learning_rate: found 'inf', needs a number >= 0, such as --learning_rate 0.001"
    )
    assert not changed


@pytest.mark.slow
def test_command_with_help_runs_nothing(tmp_path: Path) -> None:
    done, changed = run_command(tmp_path, help="true")
    assert done.returncode == 0, done.stderr
    assert "--learning_rate 0.001" in done.stdout
    assert not changed
