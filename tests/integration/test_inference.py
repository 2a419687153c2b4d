# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Every bundle is used with the weights that come with it, and not on what these cannot judge."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.bundle import ConfigWorkflow

from integration.bundle_runs import all_messages, config, new_detector, new_network, write_images
from integration.tiny_runs import BUNDLES, CONFIGS, FINE_TUNING, in_fast_suite, run_workflow
from monai_afire.detection import AnomalyDetector
from monai_afire.networks import ModelFile, TransferClassifier, UPerNet, ViTEncoder, save_network

COUNTS = {"training": 2, "validation": 3, "test": 3}
PHANTOM = {
    "phantom::num_patients": COUNTS,
    "phantom::seed": 0,
    "device": "cpu",
}


def infer(bundle: str, *overlays: str, **options: Any) -> ConfigWorkflow:
    return run_workflow(bundle, "inference", *overlays, **{"device": "cpu", **options})


def images_of(table: Path) -> set[str]:
    """Names of the files in a table: its column of images, or the first one of a table without titles."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    titled = "image" in rows[0]
    column = rows[0].index("image") if titled else 0
    return {Path(row[column]).name for row in rows[titled:]}


def tables(folder: str) -> dict[str, str]:
    """The tables of results, without that of rejected files."""
    paths = [path for path in Path(folder).glob("*.csv") if path.name != "rejected.csv"]
    assert paths
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.parametrize("bundle", in_fast_suite("ace"))
def test_results_of_phantoms_right_away_and_resumed(bundle: str) -> None:
    weights = [
        *CONFIGS[bundle].parent.glob("*/*.pt"),
        *CONFIGS[bundle].parent.glob("*/*.safetensors"),
    ]
    before = {path: path.stat().st_mtime_ns for path in weights}
    infer(bundle, **PHANTOM, name="first")
    folder = f"runs/{bundle}/first"
    written = tables(folder)
    assert [len(images_of(Path(folder, name))) for name in written] == [3] * len(written)
    infer(bundle, **PHANTOM, name="first", resume=True)
    assert tables(folder) == written
    assert {path: path.stat().st_mtime_ns for path in weights} == before
    assert [path.name for path in Path("runs", bundle).iterdir() if path.name != "data"] == [
        "first"
    ]


@pytest.mark.parametrize("bundle", in_fast_suite("mae"))
def test_a_folder_with_a_damaged_file(bundle: str) -> None:
    names = write_images(Path("images"), 3, size=96)
    Path("images", names[1]).write_bytes(b"\x89PNG\r\n\x1a\n half of it")
    options = {"dataset_dir": "images", "phantom_weights": True, "name": "judged"}
    with pytest.raises(SystemExit) as end:
        infer(bundle, **options)
    assert end.value.code == 2
    folder = f"runs/{bundle}/judged"
    assert images_of(Path(folder, "rejected.csv")) == {names[1]}
    for name in tables(folder):
        assert images_of(Path(folder, name)) == {names[0], names[2]}


@pytest.mark.slow
def test_phantoms_are_restored() -> None:
    infer("afire", "restore", **PHANTOM, name="restored")
    pictures = sorted(Path("runs/afire/restored").glob("*.png"))
    assert len(pictures) == COUNTS["validation"]
    assert len(images_of(Path("runs/afire/restored/restored.csv"))) == COUNTS["validation"]


# --- weights that know phantoms alone are no judges of radiographs

JUDGES = [
    (bundle, path.stem)
    for bundle in BUNDLES
    for pattern in ("inference", "evaluate", "fit_*")
    for path in sorted(CONFIGS[bundle].glob(f"{pattern}.json"))
]
BELOW = {
    ("afire", "evaluate"): ["inference"],
    ("afire", "fit_encoder"): ["train", "finetune_anomaly"],
}


def encoder() -> ViTEncoder:
    return ViTEncoder(img_size=24, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)


def judge(bundle: str, name: str, **settings: Any) -> Any:
    below = [] if name == "inference" else BELOW.get((bundle, name), ["train"])
    return config(bundle, *below, name, **settings)


@pytest.mark.parametrize(("bundle", "name"), JUDGES)
def test_weights_of_phantoms_refuse_radiographs(bundle: str, name: str) -> None:
    save_network(encoder(), "drawn.pt", {"trained_on": "phantoms"})
    settings: dict[str, Any] = {
        "start_weights" if name == "fit_encoder" else "ckpt_path": "drawn.pt"
    }
    parser = judge(bundle, name, **settings)
    source = parser["used_items::items"].removeprefix("@")
    parser[source] = [{"image": "patient.dcm"}]
    with pytest.raises(RuntimeError) as refusal:
        parser.get_parsed_content("used_items")
    assert "patient.dcm" in all_messages(refusal.value)
    allowed = judge(bundle, name, **settings, phantom_weights=True)
    allowed[source] = [{"image": "patient.dcm"}]
    assert len(allowed.get_parsed_content("used_items")) == 1


@pytest.mark.parametrize(("bundle", "name"), JUDGES)
def test_what_is_judged_are_the_items_that_were_checked(bundle: str, name: str) -> None:
    parser = judge(bundle, name, **PHANTOM, used_items="$1 / 0")
    if name == "fit_encoder":
        parser["weights"] = "released"
        used = "normal::dataloader"
    else:
        [used] = re.findall(r"@([\w:]+)\.run\(\)", parser["run"][0])
    with pytest.raises(RuntimeError) as refusal:
        parser.get_parsed_content(used)
    assert "division by zero" in all_messages(refusal.value)


# --- what a file says


def write_classifier(**description: Any) -> str:
    about = {"preprocessing": {"image_size": 24}, "label_kind": "multilabel", **description}
    return str(save_network(TransferClassifier(encoder(), 2), "classifier.pt", about))


def test_what_a_file_says_is_no_expression() -> None:
    path = write_classifier(class_names=["a", "b"])
    state = torch.load(path, weights_only=True)
    state._metadata[""]["monai_afire"]["class_names"] = ["$open('hacked', 'w')", "@seed"]
    torch.save(state, path)
    write_images(Path("images"), 2)
    infer("radiograph_classification", dataset_dir="images", weights=path, output_dir="out")
    assert not Path("hacked").exists()
    assert "$open" in Path("out/predictions.csv").read_text()


class Code:
    """What a malicious file asks the unpickler to call."""

    def __reduce__(self) -> tuple:
        return Path.touch, (Path("owned"),)


@pytest.mark.parametrize("bundle", BUNDLES)
def test_weights_that_carry_code_are_refused(bundle: str) -> None:
    torch.save({"weight": Code()}, "evil.pt")
    write_images(Path("images"), 1)
    with pytest.raises(RuntimeError) as refusal:
        infer(bundle, weights="evil.pt", dataset_dir="images")
    assert "evil.pt" in all_messages(refusal.value)
    assert not Path("owned").exists()


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_network_of_another_task_is_refused(bundle: str) -> None:
    networks: dict[str, Any] = {
        "classifier": TransferClassifier(encoder(), 2),
        "anomaly detector": AnomalyDetector(encoder(), memory_size=8),
        "segmenter": UPerNet(encoder(), 2, 8),
    }
    own = config(bundle, "inference")["model_file::task"]
    task = next(name for name in networks if name != own)
    save_network(networks[task], "other.pt", {"task": task})
    parser = config(bundle, "inference", weights="other.pt")
    network = "detector_def" if "detector_def" in parser else "network_def"
    with pytest.raises(RuntimeError) as refusal:
        parser.get_parsed_content(network)
    assert own in all_messages(refusal.value)


@pytest.mark.parametrize("bundle", BUNDLES)
def test_size_channels_and_contrast_come_with_the_weights(bundle: str) -> None:
    settings = {"channels": 3, "standardize": True}
    network, about = (
        new_detector(**settings) if bundle == "afire" else new_network(bundle, **settings)
    )
    save_network(network, "model.pt", about)
    parser = config(bundle, "inference", weights="model.pt")
    expected = {"image_size": 32, "channels": 3, "standardize": True}
    assert {name: parser.get_parsed_content(f"input::{name}") for name in expected} == expected
    if bundle in FINE_TUNING:
        assert parser.get_parsed_content("class_names") == ModelFile("model.pt").class_names
