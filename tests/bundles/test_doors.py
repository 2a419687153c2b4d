# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A model file says what its network is like, however a bundle is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles.bundle_runs import copy_bundles, run_bundle, write_images
from monai.bundle import ConfigWorkflow, create_workflow, load

from monai_afire.detection import AnomalyDetector
from monai_afire.networks import ModelFile, TransferClassifier, UPerNet, ViTEncoder, save_network

RELEASED = ["bundles/afire/configs/inference.json"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles and three images, in a folder in which the test starts."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    write_images(tmp_path / "images", 3, size=40)
    return tmp_path


def encoder() -> ViTEncoder:
    return ViTEncoder(img_size=24, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)


def write_classifier() -> Path:
    network = TransferClassifier(encoder(), 2)
    description = {
        "preprocessing": {"image_size": 24},
        "class_names": ["a", "b"],
        "label_kind": "multilabel",
    }
    return save_network(network, "bundles/radiograph_classification/models/model.pt", description)


def used_directly(configs: list[str], **overrides: Any) -> None:
    workflow = ConfigWorkflow(workflow_type="infer", config_file=configs, **overrides)
    workflow.initialize()
    workflow.run()
    workflow.finalize()


def created(configs: list[str], **overrides: Any) -> None:
    workflow = create_workflow(workflow_type="infer", config_file=configs, **overrides)
    workflow.run()
    workflow.finalize()


@pytest.mark.parametrize("start", [used_directly, created])
def test_released_detector_without_the_command_line(workspace: Path, start: Any) -> None:
    start(RELEASED, dataset_dir="images", output_dir="out", saved=[])
    assert len(Path("out/scores.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize("start", [used_directly, created])
def test_classifier_without_the_command_line(workspace: Path, start: Any) -> None:
    write_classifier()
    start(
        ["bundles/radiograph_classification/configs/inference.json"],
        dataset_dir="images",
        output_dir="out",
    )
    assert (
        Path("out/predictions.csv").read_text().splitlines()[0]
        == "image,probability_a,probability_b,decision_a,decision_b"
    )


@pytest.mark.slow
def test_classifier_by_the_command_line(workspace: Path) -> None:
    write_classifier()
    config = "bundles/radiograph_classification/configs/inference.json"
    result = run_bundle(workspace, config, {"dataset_dir": "images", "output_dir": "out"})
    assert result.returncode == 0, result.stderr[-3000:]


def test_network_by_monais_load(workspace: Path) -> None:
    path = write_classifier()
    network = load(
        "radiograph_classification",
        bundle_dir="bundles",
        source="github",
        workflow_type="inference",
    )
    assert torch.equal(network.classifier.weight, ModelFile(path).build().classifier.weight)


def test_what_a_file_says_is_no_expression(workspace: Path) -> None:
    path = write_classifier()
    state = torch.load(path, weights_only=True)
    state._metadata[""]["monai_afire"]["class_names"] = ["$open('hacked', 'w')", "@seed"]
    torch.save(state, path)
    used_directly(
        ["bundles/radiograph_classification/configs/inference.json"],
        dataset_dir="images",
        output_dir="out",
    )
    assert not Path("hacked").exists()
    assert "$open" in Path("out/predictions.csv").read_text()


def test_wrong_kinds_say_what_to_do(workspace: Path) -> None:
    classifier = str(write_classifier())
    detector = str(save_network(AnomalyDetector(encoder(), memory_size=8), "detector.pt"))
    landmarks = str(
        save_network(UPerNet(encoder(), 2, 8), "landmarks.pt", {"task": "landmark detector"})
    )
    for bundle, path, message in (
        (
            "afire",
            classifier,
            "is a classifier, not an anomaly detector: adapt a pre-trained network",
        ),
        (
            "radiograph_segmentation",
            classifier,
            "is a classifier, not a segmenter: fine-tune on your own images first",
        ),
        ("radiograph_segmentation", landmarks, "is a landmark detector, not a segmenter"),
        (
            "peac",
            detector,
            "is an anomaly detector, not a pre-trained PEAC network: pre-train on your own images first",
        ),
    ):
        config = [f"bundles/{bundle}/configs/inference.json"]
        with pytest.raises(Exception) as caught:  # noqa: PT011  the resolver's, with the cause in it
            used_directly(config, ckpt_path=path, dataset_dir="images", output_dir="out")
        error: BaseException | None = caught.value
        texts = []
        while error is not None:
            texts.append(str(error))
            error = error.__cause__ or error.__context__
        assert message in json.dumps(texts), bundle
