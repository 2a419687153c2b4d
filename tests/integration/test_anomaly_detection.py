# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The AFiRe bundle as an anomaly detector: adapt or fit, evaluate, use, on a few phantoms."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from integration.bundle_runs import all_messages, new_detector, new_network, write_images
from integration.tiny_runs import (
    IMAGES,
    ONE_MACHINE,
    PHANTOM,
    run_workflow,
    written,
)
from monai_afire.networks import save_network

ADAPT = ("train", "finetune_anomaly")
FIT = (*ADAPT, "fit_encoder")
RUN = {**ONE_MACHINE, "batch_size": 4}


@pytest.fixture
def pretrained() -> str:
    """File of a network that was not trained."""
    network, description = new_network("afire")
    return str(save_network(network, "pretrained.pt", description))


@pytest.fixture
def detector() -> str:
    """File of a detector that is fitted to noise."""
    network, description = new_detector()
    return str(save_network(network, "detector.pt", {**description, "trained_on": "radiographs"}))


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_adapting_keeps_the_network_and_stores_statistics(pretrained: str) -> None:
    settings = {**RUN, **IMAGES, **PHANTOM, "weights": pretrained, "specificity": 0.75}
    run_workflow("afire", *ADAPT, **settings, epochs=2, name="adapted")
    state = torch.load(written("afire", "adapted", "model.pt"), weights_only=True)
    assert state["thresholds"].isfinite().all()
    assert state["density.num_images"] == 12
    assert bool(state["map_mean"].any())
    before = torch.load(pretrained, weights_only=True)
    assert {f"network.{name}" for name in before} < set(state)
    assert not torch.equal(before["encoder.norm.weight"], state["network.encoder.norm.weight"])


@pytest.mark.slow
def test_without_labels_painted_lesions_are_found(pretrained: str) -> None:
    write_images(Path("images"), 20)
    settings = {**RUN, **IMAGES, "weights": pretrained, "dataset_dir": "images"}
    run = run_workflow("afire", *ADAPT, **settings, epochs=1)
    assert "painted" in run.evaluator.state.key_metric_name
    assert 0 <= run.evaluator.state.metrics[run.evaluator.state.key_metric_name] <= 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"weights": "none.pt"}, "none.pt"),
        ({"encoder_def::hidden_size": 36}, "pretrained"),
        ({"score_fusion": ["magic"]}, "magic"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str, pretrained: str) -> None:
    given = {**RUN, **IMAGES, **PHANTOM, "weights": pretrained, **settings}
    with pytest.raises(Exception) as refusal:  # noqa: PT011  MONAI's parser wraps what it meets
        run_workflow("afire", *ADAPT, **given)
    assert words in all_messages(refusal.value)


@pytest.mark.slow
def test_a_detector_is_fitted_to_any_encoder_without_training() -> None:
    vit = {
        "_target_": "monai.networks.nets.ViT",
        "in_channels": 1,
        "img_size": [32, 32],
        "patch_size": [8, 8],
        "hidden_size": 24,
        "mlp_dim": 48,
        "num_layers": 1,
        "num_heads": 2,
        "spatial_dims": 2,
    }
    fit = {**RUN, **IMAGES, **PHANTOM, "weights": None, "encoder": vit, "specificity": 0.75}
    run_workflow("afire", *FIT, **fit, name="fitted")
    state = torch.load(written("afire", "fitted", "model.pt"), weights_only=True)
    assert state["density.num_images"] == 12
    assert state["thresholds"].isfinite().all()
    assert not any("decoder" in name or "bank" in name for name in state)
    found = {}
    for specificity in (None, 0.01):
        name = f"used_{specificity}"
        use = {**PHANTOM, "weights": "fitted", "device": "cpu", "specificity": specificity}
        run_workflow("afire", "inference", **use, name=name)
        found[specificity] = {row["abnormal"] for row in read(f"runs/afire/{name}/scores.csv")}
        assert len(list(Path("runs/afire", name, "overlays").rglob("*.jpg"))) == 8
    assert found[None] == {""}, "of 4 normal validation images, where 0.95 needs 19"
    assert "1" in found[0.01]


@pytest.mark.slow
def test_evaluation_reports_every_figure(detector: str) -> None:
    options = {**PHANTOM, "weights": detector, "device": "cpu", "report::num_bootstraps": 20}
    run_workflow("afire", "inference", "evaluate", **options, name="judged")
    folder = Path("runs/afire/judged")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["images"] == {"normal": 4, "abnormal": 4}
    figures = {"auc", "auc_interval", "average_precision"}
    for name in ("restoration", "prototype_distance", "token_density", "fused"):
        assert figures <= set(metrics["detection"][name])
        assert {"pixel_auroc", "pointing", "aupro"} <= set(metrics["localization"][name])
    assert len(metrics["controlled"]) == 18
    assert len(read(str(folder / "evaluation.csv"))) == 8 + 18 * 4
    assert (folder / "roc_pr.png").is_file()
    assert (folder / "heat_maps.png").is_file()


def test_evaluation_of_unlabeled_images_is_refused(detector: str) -> None:
    write_images(Path("images"), 2)
    options = {"dataset_dir": "images", "weights": detector, "device": "cpu"}
    with pytest.raises(RuntimeError) as refusal:
        run_workflow("afire", "inference", "evaluate", **options)
    assert "label" in all_messages(refusal.value)
