# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``analysis.json``: one overlay for the pre-training bundles, on the phantom and on a plain folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration.bundle_runs import new_network, write_images
from integration.tiny_runs import CONFIGS, PRE_TRAINING, run_workflow
from monai_afire.data.phantom import LESION_KINDS
from monai_afire.networks import TransferClassifier, ViTEncoder, save_network

PHANTOM = {
    "phantom": {"num_patients": {"test": 6}, "image_size": 32, "abnormal_fraction": 0.5, "seed": 0}
}
OF_ALL = ["Tokens by position", "Composition and decomposition"]
OF_LANDMARKS = [
    "Landmarks by their surroundings",
    "Landmarks across patients and perturbations",
    "Left and right",
]
OF_AFIRE = ["Restoration with and without mask tokens", "Atlas of prototypes"]


def analyse(bundle: str, **overrides: Any) -> dict[str, Any]:
    """Save an untrained network, run the overlay with it, and return the report's figures."""
    network, description = new_network(bundle)
    save_network(network, "model.pt", description)
    options = {"weights": "model.pt", "device": "cpu", "name": "analysed", **overrides}
    run_workflow(bundle, "inference", "analysis", **options)
    return json.loads(Path("runs", bundle, "analysed", "report.json").read_text())


def test_overlays_differ_in_names_alone() -> None:
    texts = {bundle: (CONFIGS[bundle] / "analysis.json").read_text() for bundle in PRE_TRAINING}
    of_ace = texts.pop("ace")
    texts.pop("afire")  # which has two studies of its own
    for method, text in texts.items():
        assert of_ace.replace("ACE", method.upper()).replace("ace/", f"{method}/") == text


def write_classifier() -> dict[str, str]:
    """A classifier that is not trained, as a fine-tuning would leave it, by its name."""
    encoder = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    classifier = TransferClassifier(encoder, num_classes=len(LESION_KINDS))
    description = {"preprocessing": {"image_size": 32}, "class_names": LESION_KINDS}
    save_network(classifier, "classifier.pt", description)
    return {"fine-tuned": "classifier.pt"}


@pytest.mark.slow
def test_all_studies_on_the_phantom() -> None:
    report = analyse("afire", **PHANTOM, classifier_weights=write_classifier())
    of_classifier = ["fine-tuned: Grad-CAM"]
    studies = [study for study in report["studies"] if list(study["table"]) != of_classifier]
    assert len(studies) == len(report["studies"]) - 1
    titles = [study["title"] for study in studies]
    expected = [*OF_ALL, *OF_LANDMARKS, "Images by group", "Organs without training"]
    assert sorted(titles) == sorted([*expected, *OF_AFIRE])
    assert report["remarks"] == []
    for study in studies:
        if study["title"] not in OF_AFIRE:
            assert [name.lower() for name in list(study["table"])[:2]] == ["afire", "untrained"]
    page = Path("runs/afire/analysed", "report.html").read_text()
    assert page.count("<img") >= len(titles)


def test_a_plain_folder_gets_what_needs_no_labels() -> None:
    write_images(Path("images"), 3)
    report = analyse("ace", dataset_dir="images")
    assert [study["title"] for study in report["studies"]] == OF_ALL
    assert len(report["remarks"]) == 5
