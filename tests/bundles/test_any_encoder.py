# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A network of another library in the bundles, and a detector that is fitted without training, on the phantom."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    TINY,
    TINY_ENCODER,
    copy_bundles,
    last_run,
    saved_weights,
)
from monai.bundle import run

AFIRE = "bundles/afire/configs/"
FIT = [AFIRE + name for name in ("train.json", "finetune_anomaly.json", "fit_encoder.json")]
USE = [AFIRE + "inference.json"]
CLASSIFY = "bundles/radiograph_classification/configs/"
VIT = {
    "_target_": "monai.networks.nets.ViT",
    "in_channels": 1,
    "img_size": ["@image_size", "@image_size"],
    "patch_size": ["@patch_size", "@patch_size"],
    "hidden_size": 24,
    "mlp_dim": 48,
    "num_layers": 2,
    "num_heads": 2,
    "spatial_dims": 2,
}
PHANTOM = {
    "num_patients": {"training": 12, "validation": 8, "test": 8},
    "image_size": 32,
    "abnormal_fraction": {"training": 0.0, "validation": 0.5, "test": 0.5},
    "seed": 0,
}
RUN = {"batch_size": 4, "num_workers": 0, "phantom": PHANTOM}
SIZES = {"image_size": 32, "patch_size": 8, **RUN}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_bundles(tmp_path)
    (tmp_path / "vit.json").write_text(json.dumps({"encoder": VIT}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def decisions(folder: Path) -> list[str]:
    with (folder / "scores.csv").open(newline="", encoding="utf-8") as file:
        return [row["abnormal"] for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_detector_is_fitted_to_an_encoder_without_training(clone: Path) -> None:
    run(config_file=[*FIT, "vit.json"], **SIZES, specificity=0.75)
    file = last_run("afire") / "models/model.pt"
    state = torch.load(file, weights_only=True)
    assert state["density.num_images"] == 12
    assert state["thresholds"].shape == (5,)
    assert state["thresholds"].isfinite().all()
    assert not any("decoder" in name or "bank" in name for name in state)

    before = file.stat().st_mtime_ns, sorted(file.parents[1].rglob("*"))
    run(config_file=[*FIT, "vit.json"], **SIZES, name=file.parents[1].name, resume=True)
    assert (file.stat().st_mtime_ns, sorted(file.parents[1].rglob("*"))) == before

    found = {}
    for specificity in (None, 0.01):
        output = clone / f"used_{specificity}"
        run(config_file=USE, **RUN, **LATEST, output_dir=str(output), specificity=specificity)
        found[specificity] = decisions(output)
        assert (output / "worklist.csv").is_file()
        assert sum(path.is_file() for path in (output / "overlays").rglob("*")) == 8
    assert set(found[None]) == {""}  # of 4 normal validation images, where 0.95 needs 19
    assert "1" in found[0.01]
    assert set(found[0.01]) <= {"0", "1"}
    run(
        config_file=[*USE, AFIRE + "evaluate.json"],
        **RUN,
        **LATEST,
        output_dir="evaluated",
        **{"report::num_bootstraps": 2},
    )
    metrics = json.loads((clone / "evaluated/metrics.json").read_text())
    assert set(metrics["detection"]) == {
        *("token_density", "token_neighbors", "token_mean_density", "focal", "fused"),
        "darkness",
        "sharpness",
    }


@pytest.mark.slow
def test_a_network_of_monai_is_pretrained_and_then_probed(clone: Path) -> None:
    of_afire = {name: value for name, value in TINY.items() if name not in TINY_ENCODER}
    run(config_file=[AFIRE + "train.json", "vit.json"], **{**of_afire, **SIZES, "epochs": 1})
    trained = torch.load(last_run("afire") / "models/model.pt", weights_only=True)
    names = [name for name in trained if name.startswith("teacher_encoder.model.blocks.")]
    assert names
    settings = {
        **SIZES,
        "epochs": 1,
        "train::lr_schedule::warmup_epochs": 0,
        "train::dataloader::min_batches": 1,
        "network_def::freeze_encoder": True,
    }
    settings["phantom"] = {**PHANTOM, "abnormal_fraction": 0.5}
    weights = {"encoder_weights": str(last_run("afire"))}
    run(config_file=[CLASSIFY + "train.json", "vit.json"], **settings, **weights)
    probe = saved_weights("radiograph_classification")
    for name in names:
        assert torch.equal(probe[name.removeprefix("teacher_")], trained[name])
    evaluation = {**RUN, **LATEST, "phantom": settings["phantom"], "report::num_bootstraps": 2}
    run(config_file=[CLASSIFY + name for name in ("train.json", "evaluate.json")], **evaluation)
