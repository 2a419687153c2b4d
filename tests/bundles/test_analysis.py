# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``analysis.json``: one overlay for the pre-training bundles, on the phantom and on a plain folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles.bundle_runs import (
    at,
    copy_bundles,
    last_run,
    new_network,
    write_images,
)
from monai.bundle import run

from monai_afire.apps.phantom import LESION_KINDS
from monai_afire.networks import TransferClassifier, ViTEncoder, save_network

METHODS = {"afire": "AFiRe", "peac": "PEAC", "ace": "ACE", "mae": "MAE", "dino": "DINO"}
SHAPE = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
}
NETWORK = {
    "afire": {
        **at(
            "network_def",
            num_clusters=8,
            head_dim=16,
            decoder_dim=16,
            decoder_layers=1,
            decoder_heads=2,
        ),
    },
    "peac": {**at("network_def", expander_dim=8, expander_hidden_dim=8)},
    "ace": {},
    "mae": {**at("network_def", decoder_dim=8, decoder_layers=1, decoder_heads=2)},
    "dino": {**at("network_def", num_prototypes=8, head_dim=8, bottleneck_dim=4)},
}
PHANTOM = {"num_patients": {"test": 6}, "image_size": 32, "abnormal_fraction": 0.5, "seed": 0}
OF_ALL = ["Tokens by position", "Composition and decomposition"]
OF_LANDMARKS = [
    "Landmarks by their surroundings",
    "Landmarks across patients and perturbations",
    "Left and right",
]
OF_AFIRE = ["Restoration with and without mask tokens", "Atlas of prototypes"]


def read(bundle: str) -> dict[str, Any]:
    return json.loads(Path(f"bundles/{bundle}/configs/analysis.json").read_text())


def analyse(bundle: str, overlays: Sequence[str] = (), **overrides: Any) -> dict[str, Any]:
    """Save an untrained network, run the overlay with it, and return the report's figures."""
    of_network = (*SHAPE, *NETWORK[bundle], "channels")
    shape = {name: overrides.pop(name) for name in of_network if name in overrides}
    network, description = new_network(bundle, overlays, **{**SHAPE, **NETWORK[bundle], **shape})
    save_network(network, f"bundles/{bundle}/models/model.pt", description)
    # the file has the rest
    configs = [f"bundles/{bundle}/configs/{name}.json" for name in ("inference", "analysis")]
    precision = torch.get_float32_matmul_precision()
    try:
        run(config_file=configs, **overrides)
    finally:
        torch.set_float32_matmul_precision(precision)
    return json.loads((last_run(bundle) / "report.json").read_text())


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = copy_bundles(tmp_path)
    monkeypatch.chdir(folder)
    return folder


def test_overlays_differ_in_what_the_methods_differ_in(workplace: Path) -> None:
    contents = {bundle: read(bundle) for bundle in METHODS}
    ace = json.dumps(contents["ace"])
    for method in ("peac", "mae", "dino"):
        own = ace.replace("ACE", method.upper()).replace("runs/ace/", f"runs/{method}/")
        assert own == json.dumps(contents[method])
    afire = contents["afire"]
    train_amplitude = json.loads(Path("bundles/afire/configs/train.json").read_text())[
        "add_lesions"
    ]["amplitude"]
    only_afire = {
        name: afire.pop(name) for name in ("ckpt_path", "network_def", "model_file::hint")
    }
    assert all(only_afire.values())
    for content in contents.values():
        # the one goes by its network, the others by the encoders that they compare
        del content["model_file::task"]
        content.pop("model_file::path", None)
    own = [study for study in afire["studies"] if "networks" in study]
    assert own[0]["lesion_options"] == {"amplitude": train_amplitude}
    afire["studies"] = [study for study in afire["studies"] if study not in own]
    assert [study["_target_"].rsplit(".", 1)[1] for study in own] == [
        "RestorationStudy",
        "PrototypeStudy",
    ]
    ace = json.dumps(contents["ace"])
    assert ace.replace("ACE", "AFiRe").replace("runs/ace/", "runs/afire/") == json.dumps(afire)


@pytest.mark.slow
@pytest.mark.parametrize("bundle", METHODS)
def test_all_studies_on_the_phantom(bundle: str, workplace: Path) -> None:
    report = analyse(bundle, phantom=PHANTOM)
    titles = [study["title"] for study in report["studies"]]
    expected = [*OF_ALL, *OF_LANDMARKS, "Images by group", "Organs without training"]
    assert sorted(titles) == sorted([*expected, *(OF_AFIRE if bundle == "afire" else [])])
    assert report["remarks"] == []
    for study in report["studies"]:
        if study["title"] not in OF_AFIRE:
            assert list(study["table"])[:2] == [METHODS[bundle], "untrained"]
    assert (last_run(bundle) / "report.html").read_text().count("<img") >= len(titles)


def test_a_plain_folder_gets_what_needs_no_labels(workplace: Path) -> None:
    write_images(workplace / "images", 3)
    report = analyse("ace", dataset_dir=str(workplace / "images"))
    assert [study["title"] for study in report["studies"]] == OF_ALL
    assert sorted(remark.split()[0] for remark in report["remarks"]) == [
        "CorrespondenceStudy",
        "CosegmentationStudy",
        "ImageMapStudy",
        "LandmarkMapStudy",
        "SymmetryStudy",
    ]


@pytest.mark.slow
def test_a_fine_tuned_classifier_is_looked_into(workplace: Path) -> None:
    shape = {"img_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
    classifier = TransferClassifier(ViTEncoder(**shape), num_classes=len(LESION_KINDS))
    description = {"preprocessing": {"image_size": 32}, "class_names": LESION_KINDS}
    save_network(classifier, workplace / "classifier.pt", description)
    report = analyse(
        "ace", phantom=PHANTOM, classifier_weights={"fine-tuned": str(workplace / "classifier.pt")}
    )
    assert list(report["studies"][-1]["table"]) == ["fine-tuned: Grad-CAM", "fine-tuned: roll-out"]
