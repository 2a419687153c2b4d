# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The check where it stands, in a config's ``initialize``: the words of MONAI's command are answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from apps.runs.bundle_configs import paths_of
from monai.bundle import create_workflow
from monai_afire.apps.runs import OptionError, bundle_call, start_bundle

from tests.bundles.bundle_runs import copy_bundles, run_bundle


@pytest.fixture(autouse=True)
def no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Bundles change the process and write where they run."""
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    precision, state = torch.get_float32_matmul_precision(), torch.get_rng_state()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_rng_state(state)


def call_with(monkeypatch: pytest.MonkeyPatch, *words: str, key: str = "afire/train") -> None:
    """Prepare a bundle in a process with the words of MONAI's command."""
    arguments = ["run", "--config_file", paths_of([key])[0], *words]
    monkeypatch.setattr("sys.argv", ["site-packages/monai/bundle/__main__.py", *arguments])
    start_bundle()


def test_what_a_program_passes_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a program whose own command line has options of other meanings."""
    monkeypatch.setattr("sys.argv", ["my_program.py", "--epoch", "3"])
    workflow = create_workflow(
        config_file=paths_of(["afire/inference"]), epoch=3, device="cpu", logging_file=False
    )
    assert workflow.parser["epoch"] == 3
    assert bundle_call(["my_program.py", "--config_file", *paths_of(["afire/train"])]) is None


def test_words_are_refused_with_all_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError) as caught:
        call_with(monkeypatch, "--epoch", "3", "--train#trainer#max_epocs=3", "--resume", "false")
    assert "--epoch: there is no such option; did you mean --epochs?" in str(caught.value)
    assert "train::trainer has no 'max_epocs'" in str(caught.value)
    assert "--resume: found 'false', needs True or False" in str(caught.value)


def test_overrides_of_a_file_of_arguments_are_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = tmp_path / "arguments.json"
    arguments.write_text(json.dumps({"config_file": paths_of(["ace/train"]), "num_classes": 7}))
    words = ["site-packages/monai/bundle/__main__.py", "run", "--args_file", str(arguments)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(OptionError, match="--num_classes: nothing reads it in this run"):
        start_bundle()


def test_arguments_of_monai_are_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--run_id", "run", "--init_id", "initialize", "--logging_file=False"]
    call_with(monkeypatch, *words, "--workflow_type", "train", key="radiograph_landmarks/train")
    call_with(monkeypatch, "--tracking", "mlflow", "--run_name", "first")


def test_the_device_of_a_run_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    call_with(monkeypatch, "--device", "cpu", "--train::inferer::enabled", "False")
    workflow = create_workflow(
        config_file=paths_of(["afire/inference"]), device="cpu", logging_file=False
    )
    evaluator = workflow.parser.get_parsed_content("device")
    assert torch.device(evaluator) == torch.device("cpu")


@pytest.mark.parametrize("option", ["help", "h"])
def test_help_lists_what_the_run_reads_and_ends(
    option: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [f"-{option}" if len(option) == 1 else f"--{option}", "--epochs", "3"]
    with pytest.raises(SystemExit) as caught:
        call_with(monkeypatch, *words, key="radiograph_classification/train")
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
    done, changed = run_command(tmp_path, help="True")
    assert done.returncode == 0, done.stderr
    assert "--learning_rate 0.001" in done.stdout
    assert not changed
