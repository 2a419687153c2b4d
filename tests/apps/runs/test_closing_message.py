# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The message at the end of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ignite.engine import Engine, Events

from monai_afire.apps.runs import ClosingMessage
from monai_afire.networks import AFiRe, ViTEncoder, save_network


def run(message: ClosingMessage, epochs: int = 1) -> None:
    engine = Engine(lambda engine, batch: None)
    message.attach(engine)
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: print("epoch"))
    engine.run([0], max_epochs=epochs)


def validator(epoch: int, metric: float) -> Any:
    return SimpleNamespace(state=SimpleNamespace(best_metric_epoch=epoch, best_metric=metric))


def test_it_names_what_exists_once_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scores.csv").touch()
    files = {"scores": [str(tmp_path), "scores.csv"], "picture": [str(tmp_path), "picture.png"]}
    run(ClosingMessage(files, curves="logs"), epochs=2)
    expected = (
        f"epoch\nepoch\nscores:    {tmp_path}/scores.csv\ncurves:    tensorboard --logdir logs\n"
    )
    assert capsys.readouterr().out == expected


def test_other_ranks_are_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("monai_afire.apps.runs.closing_message.global_rank", lambda: 1)
    run(ClosingMessage(curves="logs"))
    assert "logs" not in capsys.readouterr().out


def test_no_message_after_a_crash(capsys: pytest.CaptureFixture[str]) -> None:
    def crash(engine: Engine, batch: int) -> None:
        raise RuntimeError("broken")

    engine = Engine(crash)
    ClosingMessage(curves="logs").attach(engine)
    with pytest.raises(RuntimeError, match="broken"):
        engine.run([0])
    assert "logs" not in capsys.readouterr().out


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
    message = ClosingMessage({"model": [str(tmp_path), "model.pt"]}, validator=state)
    assert message.lines() == {"model": f"{tmp_path}/model.pt{words}"}


def test_commands_leave_out_what_the_model_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("hidden_size", "patch_size", "seed")
    (tmp_path / "config.json").write_text(json.dumps(dict.fromkeys(names)))
    arguments = ["run", "--config_file", "train.json"]
    for name in names:
        arguments += [f"--{name}", "8"]
    monkeypatch.setattr(sys, "argv", ["/site/monai/bundle/__main__.py", *arguments])
    commands = {"next": {"configs": ["config.json"], "ckpt_path": "a.pt"}}
    message = ClosingMessage(
        {"model": str(tmp_path / "model.pt")}, commands, config_dir=str(tmp_path)
    )
    start = f"python -m monai.bundle run --config_file {tmp_path}/config.json"
    torch.save({"w": torch.ones(1)}, tmp_path / "model.pt")
    assert (
        message.lines()["next"]
        == f"{start} --hidden_size 8 --patch_size 8 --seed 8 --ckpt_path a.pt"
    )
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=8, num_layers=1, num_heads=2)
    save_network(AFiRe(encoder, 8, 16, 16, 1, 2), tmp_path / "model.pt")
    assert message.lines()["next"] == f"{start} --seed 8 --ckpt_path a.pt"


@pytest.mark.parametrize(("trained_on", "offered"), [("phantoms", False), ("radiographs", True)])
def test_a_model_of_phantoms_is_not_offered_radiographs(
    tmp_path: Path, trained_on: str, offered: bool
) -> None:
    (tmp_path / "inference.json").write_text('{"ckpt_path": "", "dataset_dir": null}')
    path = save_network(torch.nn.Linear(1, 1), tmp_path / "model.pt", {"trained_on": trained_on})
    use = {"configs": ["inference.json"], "ckpt_path": "model", "dataset_dir": "/path/to/images"}
    lines = ClosingMessage({"model": str(path)}, {"use": use}, str(tmp_path)).lines()
    assert f"--ckpt_path {path}" in lines["use"]
    assert ("--dataset_dir /path/to/images" in lines["use"]) == offered


def test_commands_repeat_the_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inference.json").write_text(
        '{"hidden_size": 192, "ckpt_path": "", "dataset_dir": null}'
    )
    arguments = ["run", "--config_file", "train.json", "--hidden_size", "384", "--epochs", "2"]
    monkeypatch.setattr(sys, "argv", ["/site/monai/bundle/__main__.py", *arguments])
    entry = {
        "configs": ["inference.json"],
        "ckpt_path": ["my models", "model.pt"],
        "dataset_dir": "/path/to/images",
    }
    message = ClosingMessage(
        commands={"use": entry, "evaluate": {"configs": ["none.json"]}}, config_dir=str(tmp_path)
    )
    command = (
        f"python -m monai.bundle run --config_file {tmp_path}/inference.json --hidden_size 384"
    )
    assert message.lines() == {
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
def test_an_evaluation_needs_labels(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    labels: list[int | None],
    is_shown: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inference.json").write_text('{"dataset_dir": null, "datalist": null}')
    items = [{"image": f"{number}.png", "label": label} for number, label in enumerate(labels)]
    (tmp_path / "list.json").write_text(json.dumps({"training": ["a.png"], "test": items}))
    start = ["/site/monai/bundle/__main__.py", "run", "--config_file", "train.json"]
    monkeypatch.setattr(sys, "argv", [*start, *given])
    entry = {"configs": ["inference.json"], "same_images": True, "needs_labels": True}
    lines = ClosingMessage(commands={"evaluate": entry}, config_dir=str(tmp_path)).lines()
    assert ("evaluate" in lines) == is_shown
