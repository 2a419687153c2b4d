# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The next steps of a training are those that the bundle's configs make possible."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bundles.bundle_runs import REPOSITORY_ROOT
from torch import nn

from monai_afire.apps.runs import run_training, training_message
from monai_afire.detection import AnomalyDetector
from monai_afire.engines import TrackedTrainer
from monai_afire.handlers import RestorationPreview, TrainingRun
from monai_afire.networks import ViTEncoder

PRETRAINING = ("peac", "ace", "mae", "dino")
TRANSFER = ("radiograph_classification", "radiograph_segmentation", "radiograph_landmarks")


@pytest.mark.parametrize("bundle", ["afire", *PRETRAINING, *TRANSFER])
def test_the_configs_of_all_next_steps_exist(bundle: str, tmp_path: Path) -> None:
    root = REPOSITORY_ROOT / "bundles" / bundle
    (tmp_path / "model.pt").touch()
    message = training_message(None, str(tmp_path), str(root))
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
    lines = training_message(AnomalyDetector(encoder), str(tmp_path), str(root)).lines()
    assert set(lines) == {"model", "evaluate", "use"}
    assert "inference.json" in lines["evaluate"]
    assert "evaluate.json" in lines["evaluate"]
    assert "train.json" not in lines["evaluate"]


def test_a_run_says_its_model_its_picture_and_its_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    preview = RestorationPreview(None, "picture.png", {})  # type: ignore[arg-type]
    run = TrainingRun(
        network, optimizer, None, str(tmp_path), str(tmp_path / "models"), preview=preview
    )
    trainer = TrackedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        network=network,
        loss_function=nn.MSELoss(),
        optimizer=optimizer,
        train_data_loader=[{"image": torch.rand(4, 2), "label": torch.rand(4, 1)}],
        run=run,
    )
    (tmp_path / "picture.png").touch()
    run_training(trainer, str(REPOSITORY_ROOT / "bundles" / "mae"))
    said = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines() if ": " in line)
    assert str(tmp_path / "models" / "model.pt") in said["model"]
    assert said["picture"].strip() == str(tmp_path / "picture.png")
    assert said["curves"].strip() == f"tensorboard --logdir {tmp_path}"
    assert list(tmp_path.glob("events.*"))
