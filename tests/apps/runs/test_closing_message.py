# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where the results of a run are, and what to do next, is said at its end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bundles.bundle_runs import REPOSITORY_ROOT
from ignite.engine import Engine, Events
from monai_afire.apps.runs import (
    ClosingMessage,
    TrainingMessage,
    check_folders,
    run_folder,
    run_training,
)
from torch import nn

from monai_afire.detection import AnomalyDetector
from monai_afire.engines import TrackedTrainer
from monai_afire.handlers import RestorationPreview, TrainingRun
from monai_afire.networks import AFiRe, ViTEncoder, save_network
from monai_afire_cli.runs.run_records import is_finished


def run(message: ClosingMessage, epochs: int = 1) -> None:
    engine = Engine(lambda engine, batch: None)
    message.attach(engine)
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: print("epoch"))
    engine.run([0], max_epochs=epochs)


def test_it_names_what_exists_once_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scores.csv").touch()
    files = {"scores": [str(tmp_path), "scores.csv"], "picture": [str(tmp_path), "picture.png"]}
    run(ClosingMessage(files), epochs=2)
    assert capsys.readouterr().out == f"epoch\nepoch\nscores:    {tmp_path}/scores.csv\n"


@pytest.mark.parametrize("kind", ["phantoms", "radiographs"])
def test_weights_of_phantoms_are_named_again(kind: str) -> None:
    bundle = {"phantoms": "radiograph_landmarks", "radiographs": "afire"}[kind]
    weights = str(REPOSITORY_ROOT / "bundles" / bundle / "models" / "model.pt")
    lines = ClosingMessage({}, weights=weights).lines()
    assert ("weights" in lines) == (kind == "phantoms")
    assert all("drawn phantoms" in line and weights in line for line in lines.values())


def test_other_ranks_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("monai_afire.apps.runs.closing_message.global_rank", lambda: 1)
    run(ClosingMessage({"results": str(tmp_path)}))
    assert "results" not in capsys.readouterr().out


def test_no_message_after_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def crash(engine: Engine, batch: int) -> None:
        raise RuntimeError("broken")

    engine = Engine(crash)
    ClosingMessage({"results": str(tmp_path)}).attach(engine)
    with pytest.raises(RuntimeError, match="broken"):
        engine.run([0])
    assert "results" not in capsys.readouterr().out


PRETRAINING = ("peac", "ace", "mae", "dino")
TRANSFER = ("radiograph_classification", "radiograph_segmentation", "radiograph_landmarks")
START = "/site/monai/bundle/__main__.py", "run", "--config_file", "train.json"


def validator(epoch: int, metric: float) -> Any:
    return SimpleNamespace(state=SimpleNamespace(best_metric_epoch=epoch, best_metric=metric))


def bundle(folder: Path, inference: dict[str, Any], **others: dict[str, Any]) -> str:
    """A bundle whose networks can be used and evaluated."""
    (folder / "configs").mkdir()
    for name, content in {"inference": inference, "evaluate": {}, **others}.items():
        (folder / f"configs/{name}.json").write_text(json.dumps(content))
    return str(folder)


@pytest.mark.parametrize("bundle", ["afire", *PRETRAINING, *TRANSFER])
def test_the_configs_of_all_next_steps_exist(bundle: str, tmp_path: Path) -> None:
    root = REPOSITORY_ROOT / "bundles" / bundle
    (tmp_path / "model.pt").touch()
    message = TrainingMessage(None, str(tmp_path), str(root))
    lines = message.lines()
    assert lines["model"] == str(tmp_path / "model.pt")
    commands = {
        name: text for name, text in lines.items() if text.startswith("python -m monai.bundle run")
    }
    assert set(commands) == ({"evaluate", "use"} if bundle in TRANSFER else {"next"})
    wanted = {"afire": "finetune_anomaly.json"} | dict.fromkeys(
        PRETRAINING, "radiograph_classification"
    )
    assert wanted.get(bundle, "inference.json") in " ".join(commands.values())


def test_a_detector_is_evaluated_and_used(tmp_path: Path) -> None:
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    (tmp_path / "model.pt").touch()
    root = REPOSITORY_ROOT / "bundles" / "afire"
    lines = TrainingMessage(AnomalyDetector(encoder), str(tmp_path), str(root)).lines()
    assert set(lines) == {"model", "evaluate", "use"}
    assert "inference.json" in lines["evaluate"]
    assert "evaluate.json" in lines["evaluate"]
    assert "train.json" not in lines["evaluate"]


def training_in(folder: Path, epochs: int = 1, resume: bool = False) -> TrackedTrainer:
    """A training in miniature."""
    network = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    preview = RestorationPreview(None, "picture.png", {})  # type: ignore[arg-type]
    run = TrainingRun(
        network,
        None,
        str(folder),
        str(folder / "models"),
        resume=resume,
        preview=preview,
    )
    return TrackedTrainer(
        device=torch.device("cpu"),
        max_epochs=epochs,
        network=network,
        loss_function=nn.MSELoss(),
        optimizer=optimizer,
        train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}],
        run=run,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_training_says_once_how_to_go_on(
    tmp_path: Path,
    number: int,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Path("monai", "bundle", "__main__.py")
    monkeypatch.setattr(sys, "argv", [str(program), "run", "--config_file", "train.json"])
    trainer = training_in(tmp_path, epochs=3)
    trainer.add_event_handler(
        Events.ITERATION_STARTED(once=2), lambda engine: signal.raise_signal(number)
    )
    with pytest.raises(SystemExit) as stopped:
        run_training(trainer, str(REPOSITORY_ROOT / "bundles" / "mae"))
    said = capsys.readouterr()
    everything = f"{said.out} {said.err} {caplog.text} {stopped.value}"
    assert everything.count("resume") == 1
    assert everything.count("--resume True") == 1


def test_a_run_says_its_model_its_picture_and_its_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = training_in(tmp_path, epochs=5)
    (tmp_path / "picture.png").touch()
    run_training(trainer, str(REPOSITORY_ROOT / "bundles" / "mae"))
    said = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines() if ": " in line)
    assert str(tmp_path / "models" / "model.pt") in said["model"]
    assert said["picture"].strip() == str(tmp_path / "picture.png")
    assert said["curves"].strip() == f"tensorboard --logdir {tmp_path}"
    assert list(tmp_path.glob("events.*"))


def test_a_complete_training_is_left_as_it_is_until_more_epochs_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = str(REPOSITORY_ROOT / "bundles" / "mae")
    folder = Path(run_folder(bundle, "train", "mine"))
    run_training(training_in(folder, epochs=5), bundle)
    Path(run_folder(bundle, "train", "newer"), "note.txt").touch()
    before = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    check_folders(str(folder), str(folder / "models"), resume=True)
    run_training(training_in(folder, epochs=5, resume=True), bundle)
    assert "complete already" in caplog.text
    after = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    assert after == before
    assert folder.with_name("latest").resolve().name == "newer"
    run_training(training_in(folder, epochs=10, resume=True), bundle)
    assert folder.with_name("latest").resolve().name == "mine"
    assert len(list(folder.glob("events.*"))) == 2
    assert is_finished(folder)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (validator(3, 0.8), " (of the best validation; resumable: checkpoint.pt beside it)"),
        (validator(-1, -1.0), " (resumable: checkpoint.pt beside it)"),
        (validator(1, float("nan")), " (resumable: checkpoint.pt beside it)"),
        (None, " (resumable: checkpoint.pt beside it)"),
    ],
)
def test_it_does_not_praise_what_was_not_validated(tmp_path: Path, state: Any, words: str) -> None:
    for name in ("model.pt", "checkpoint.pt"):
        (tmp_path / name).touch()
    message = TrainingMessage(None, str(tmp_path), "no_bundle", validator=state)
    assert message.lines() == {"model": f"{tmp_path}/model.pt{words}"}


def test_commands_leave_out_what_the_model_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("image_size", "patch_size", "seed")
    train = dict.fromkeys((*names, "ckpt_path"))
    root = bundle(tmp_path, {"ckpt_path": ""}, train=train, evaluate={})
    files = [f"{root}/configs/{name}.json" for name in ("train", "evaluate")]
    given = [word for name in names for word in (f"--{name}", "8")]
    monkeypatch.setattr(sys, "argv", [*START[:-1], files[0], *given])
    message = TrainingMessage(None, root, root)
    start = f"python -m monai.bundle run --config_file \"['{files[0]}','{files[1]}']\""
    end = f"--seed 8 --ckpt_path {root}/model.pt"
    torch.save({"w": torch.ones(1)}, tmp_path / "model.pt")
    assert message.lines()["evaluate"] == f"{start} --image_size 8 --patch_size 8 {end}"
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=8, num_layers=1, num_heads=2)
    save_network(AFiRe(encoder, 8, 16, 16, 1, 2), tmp_path / "model.pt")
    assert message.lines()["evaluate"] == f"{start} {end}"


@pytest.mark.parametrize(("trained_on", "offered"), [("phantoms", False), ("radiographs", True)])
def test_a_model_of_phantoms_is_not_offered_radiographs(
    tmp_path: Path, trained_on: str, offered: bool
) -> None:
    root = bundle(tmp_path, {"ckpt_path": "", "dataset_dir": None})
    path = save_network(torch.nn.Linear(1, 1), tmp_path / "model.pt", {"trained_on": trained_on})
    lines = TrainingMessage(None, root, root).lines()
    assert f"--ckpt_path {path}" in lines["use"]
    assert ("--dataset_dir /path/to/images" in lines["use"]) == offered
    assert ("refuses" in lines) != offered


def test_commands_need_their_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = bundle(tmp_path, {"hidden_size": 192, "ckpt_path": "", "dataset_dir": None})
    monkeypatch.setattr(sys, "argv", [*START, "--hidden_size", "384", "--epochs", "2"])
    command = f"python -m monai.bundle run --config_file {root}/configs/inference.json"
    # without train.json nothing is evaluated
    assert TrainingMessage(None, "my models", root).lines() == {
        "use": f"{command} --ckpt_path 'my models/model.pt' --dataset_dir /path/to/images"
    }


@pytest.mark.parametrize(
    ("given", "labels", "is_shown"),
    [
        ([], [], True),  # phantoms
        (["--dataset_dir", "."], [], False),
        (["--datalist", "list.json"], [0, 1], True),
        (["--datalist", "list.json"], [0, None], False),
        (["--datalist", "list.json", "--dataset_dir", "."], [1], True),
    ],
)
def test_an_evaluation_of_a_detector_needs_labels(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    labels: list[int | None],
    is_shown: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    root = bundle(tmp_path, {"dataset_dir": None, "datalist": None}, train={})
    items = [{"image": f"{number}.png", "label": label} for number, label in enumerate(labels)]
    (tmp_path / "list.json").write_text(json.dumps({"training": ["a.png"], "test": items}))
    monkeypatch.setattr(sys, "argv", [*START, *given])
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    assert ("evaluate" in TrainingMessage(AnomalyDetector(encoder), root, root).lines()) == is_shown
    assert "evaluate" in TrainingMessage(None, root, root).lines()  # has learned from labels


def test_an_evaluation_is_not_told_how_long_the_training_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("epochs", "learning_rate", "accumulation_steps", "seed")
    root = bundle(tmp_path, {}, train=dict.fromkeys((*names, "ckpt_path")))
    torch.save({"w": torch.ones(1)}, tmp_path / "model.pt")
    given = [word for name in names for word in (f"--{name}", "8")]
    monkeypatch.setattr(sys, "argv", [*START[:-1], f"{root}/configs/train.json", *given])
    command = TrainingMessage(None, root, root).lines()["evaluate"]
    assert "--seed 8" in command
    assert not any(f"--{name} " in command for name in names[:3])
