# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The shape of a network is said once, when it is pre-trained: every later step has it from the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    at,
    copy_bundles,
    last_run,
    run_bundle,
    train_in_process,
)
from monai.bundle import run

from monai_afire.networks import ModelFile

SHAPE = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=2, num_heads=2),
    "standardize": True,
}
OWN = {
    "afire": {
        **at(
            "network_def",
            head_dim=16,
            num_clusters=8,
            decoder_dim=16,
            decoder_layers=1,
            decoder_heads=2,
        ),
        # as configs/ablations/contrast_of_features.json
        "network_def::contrast_space": "features",
        "loss::similarity": "cosine",
        "validate::key_metric::restoration_gain::similarity": "cosine",
    },
    "peac": {"grid": 6, **at("network_def", expander_dim=8, expander_hidden_dim=8)},
    "ace": {"grid": 10, "cell": 4},
}
PHANTOM = {
    "num_patients": {"training": 8, "validation": 4, "test": 4},
    "image_size": 48,
    "abnormal_fraction": {"training": 0.0, "validation": 0.5, "test": 0.5},
    "seed": 0,
}
RUN = {"epochs": 1, "batch_size": 4, "train::run::val_interval": 1, "phantom": PHANTOM}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles in a folder of their own, with which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    return tmp_path


def configs(bundle: str, *names: str) -> list[str]:
    return [f"bundles/{bundle}/configs/{name}.json" for name in names]


def step(bundle: str, *names: str, **overrides: Any) -> None:
    train_in_process(configs(bundle, *names), {"phantom": PHANTOM, **overrides})


def analyse(bundle: str, weights: str) -> None:
    phantom = {**PHANTOM, "num_patients": {"test": 4}, "abnormal_fraction": 0.5}
    study = {"_target_": "monai_afire.apps.studies.CompositionStudy", "batch_size": 4}
    step(bundle, "inference", "analysis", ckpt_path=weights, phantom=phantom, studies=[study])
    assert (last_run(bundle) / "report.json").is_file()


def metadata_of(path: str) -> dict[str, Any]:
    """What an exported graph says about itself."""
    if path.endswith(".onnx"):
        onnx = pytest.importorskip("onnx")
        return {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}
    extra = {"metadata.json": ""}
    torch.export.load(path, extra_files=extra)
    return json.loads(extra["metadata.json"])


@pytest.mark.slow
def test_a_detector_from_pre_training_to_its_export(workspace: Path) -> None:
    first = run_bundle(workspace, configs("afire", "train")[0], {**SHAPE, **OWN["afire"], **RUN})
    assert first.returncode == 0, first.stderr[-3000:]
    pretrained = str(last_run("afire") / "models/model.pt")
    following = next(line for line in first.stdout.splitlines() if line.startswith("next:"))
    assert "--pretrained" in following
    assert "--loss::similarity cosine" in following, "of the loss, not of the network"
    network = [name for name in OWN["afire"] if name.startswith("network_def::")]
    assert not [name for name in (*SHAPE, *network) if f"--{name}" in following]
    detection = {"memory_size": 8, "aggregation": "mean", "fusion": ["token_neighbors"], "views": 2}
    overrides = {**RUN, **at("detector_def", **detection), "loss::similarity": "cosine"}
    step("afire", "train", "finetune_anomaly", **overrides, **LATEST)
    for overlay in ("evaluate", "restore"):
        figures = {"report::num_bootstraps": 5} if overlay == "evaluate" else {}
        step("afire", "inference", overlay, **LATEST, **figures)
    step("afire", "inference", **LATEST)
    analyse("afire", pretrained)
    export = {"run_id": "export", "export_path": "detector.pt2", **LATEST}
    step("afire", "inference", **export)
    description = metadata_of("detector.pt2")["description"]
    detector = description["network"]["arguments"]
    assert detection.items() <= detector.items()
    assert {"num_clusters": 8, "contrast_space": "features"}.items() <= detector["network"][
        "arguments"
    ].items()
    assert detector["network"]["arguments"]["encoder"]["arguments"]["num_layers"] == 2
    assert description["preprocessing"]["standardize"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "task"), [("peac", "classification"), ("ace", "segmentation"), ("ace", "landmarks")]
)
def test_a_transfer_from_pre_training_to_its_use(workspace: Path, method: str, task: str) -> None:
    step(method, "train", **{**SHAPE, **OWN[method], **RUN})
    weights = str(last_run(method) / "models/model.pt")
    step(method, "inference", **LATEST)
    if task != "landmarks":
        analyse(method, weights)
    own: dict[str, Any] = {"network_def::channels": 8}
    if task == "classification":
        own = {
            "network_def::standardize_features": False,
            "train::warm_start::_disabled_": True,
        }
    phantom = {**PHANTOM, "abnormal_fraction": 0.5}
    bundle = f"radiograph_{task}"
    step(
        bundle,
        "train",
        encoder_weights=weights,
        **{**RUN, **own, "train::dataloader::min_batches": 1, "phantom": phantom},
    )
    model = last_run(bundle) / "models/model.pt"
    step(bundle, "train", "evaluate", phantom=phantom, **LATEST)
    names = ModelFile(model).class_names
    model.replace("copied.pt")
    step(bundle, "inference", ckpt_path="copied.pt", phantom=phantom)
    exported = "copied.onnx" if task == "classification" else "copied.pt2"
    run(
        config_file=configs(bundle, "inference"),
        run_id="export",
        ckpt_path="copied.pt",
        export_path=exported,
    )
    description = metadata_of(exported)["description"]
    assert description["class_names"] == names
    assert description["network"]["arguments"]["encoder"]["arguments"]["hidden_size"] == 24
    assert description["preprocessing"]["standardize"] is True
