# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The words that name weights, the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from monai_afire.data import usable_items
from monai_afire.networks import (
    AFiRe,
    ModelFile,
    TransferClassifier,
    find_weights,
    load_encoder,
    save_network,
)
from unit.tiny_networks import tiny_vit

CLASSIFICATION = "bundles/radiograph_classification"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of three bundles from the oldest to the newest: a pre-training, two classifiers, a pre-training."""
    monkeypatch.chdir(tmp_path)
    about = {"preprocessing": {"image_size": 32}, "trained_on": "radiographs"}
    classifier = {**about, "class_names": ["Nodule"]}
    for seconds, (name, network, description) in enumerate(
        [
            ("afire/pre", AFiRe(tiny_vit(), num_clusters=8, decoder_layers=1), about),
            ("radiograph_classification/old", TransferClassifier(tiny_vit(), 1), classifier),
            ("radiograph_classification/new", TransferClassifier(tiny_vit(), 1), classifier),
            ("mae/newer", AFiRe(tiny_vit(), num_clusters=8, decoder_layers=1), about),
        ]
    ):
        folder = Path("runs", name)
        (folder / "models").mkdir(parents=True)
        save_network(network, folder / "models" / "model.pt", description)
        os.utime(folder, (seconds, seconds))
    return Path("runs")


@pytest.mark.parametrize(
    ("word", "task", "bundle", "expected"),
    [
        ("latest", "classifier", CLASSIFICATION, "radiograph_classification/new"),
        ("old", "classifier", CLASSIFICATION, "radiograph_classification/old"),
        ("latest", "encoder", None, "mae/newer"),
        ("afire/pre", "encoder", CLASSIFICATION, "afire/pre"),
        ("pre", "encoder", None, "afire/pre"),
        ("runs/afire/pre/models/model.pt", "encoder", None, "afire/pre"),
    ],
)
def test_runs_are_found_by_their_names(
    word: str, task: str, bundle: str | None, expected: str, runs: Path
) -> None:
    assert Path(str(find_weights(word, task, bundle))) == runs / expected / "models" / "model.pt"


@pytest.mark.parametrize(
    ("word", "task", "file"),
    [
        ("released_224", "encoder", "vit_tiny_patch16_224.safetensors"),
        ("released_cnn", "encoder", "efficientnet_lite0_contrast.safetensors"),
        ("released", "anomaly detector", "detector.safetensors"),
        ("released", "classifier", "nih_findings.pt"),
        ("released", "segmenter", "lungs_and_heart.pt"),
    ],
)
def test_released_weights_are_those_of_the_task(word: str, task: str, file: str) -> None:
    path = find_weights(word, task)
    assert Path(str(path)).name == file
    assert task == "encoder" or ModelFile(str(path)).description.task == task


def test_demo_weights_are_those_of_the_bundle(repository_root: Path) -> None:
    bundle = repository_root / "bundles" / "radiograph_landmarks"
    assert find_weights("demo", "landmark detector", bundle) == str(bundle / "models" / "model.pt")
    assert find_weights(None) is None


def test_other_words_are_refused_with_what_there_is(runs: Path) -> None:
    with pytest.raises(FileNotFoundError, match="afire/pre"):
        find_weights("afire/per")


def test_weights_of_another_task_are_not_the_latest(runs: Path) -> None:
    with pytest.raises(FileNotFoundError, match="segmenter"):
        find_weights("latest", "segmenter", "bundles/radiograph_segmentation")


def test_an_encoder_loads_from_a_run(runs: Path) -> None:
    loaded, transform = load_encoder("latest")
    assert loaded(transform(torch.rand(50, 40).numpy())[None]).shape == (1, 16, 24)


def test_phantom_weights_refuse_radiographs(repository_root: Path) -> None:
    demo = repository_root / "bundles" / "radiograph_landmarks" / "models" / "model.pt"
    items = [{"image": "patient.dcm"}]
    with pytest.raises(ValueError, match="patient"):
        usable_items(str(demo), items)
    assert usable_items(str(demo), items, phantom_weights=True) == items
    assert usable_items(find_weights("released"), items) == items
