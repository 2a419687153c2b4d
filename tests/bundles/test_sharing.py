# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bundles as others get them: loaded from a folder, exported, packed without private files, with a model card."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import monai.bundle
import onnx
import onnxruntime
import pytest
import torch
from bundles.bundle_runs import (
    all_messages,
    at,
    copy_bundles,
    last_run,
    new_detector,
    new_network,
    train_in_process,
)
from huggingface_hub import ModelCard
from monai.bundle import ConfigParser, ckpt_export, create_workflow, load, push_to_hf_hub
from monai.bundle.utils import load_bundle_config

from monai_afire.apps.zoo import pack_bundle
from monai_afire.detection.scores import SCORE_NAMES
from monai_afire.networks import save_network

METHODS = ("afire", "peac", "ace", "mae", "dino")
TASKS = ("radiograph_classification", "radiograph_segmentation", "radiograph_landmarks")
BUNDLES = (*METHODS, *TASKS)
# of the Model Zoo's template for a bundle's README
ZOO_HEADINGS = (
    "Authors",
    "Tags",
    "Model Description",
    "Data",
    "System Configuration",
    "Performance",
    "Commands",
    "Limitations",
    "References",
    "License",
)
ENCODER = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
}
NETWORK: dict[str, dict[str, Any]] = {
    "afire": {
        **at(
            "network_def",
            head_dim=8,
            num_clusters=4,
            decoder_dim=8,
            decoder_layers=1,
            decoder_heads=2,
        ),
    },
    "peac": {"grid": 6, **at("network_def", expander_dim=8, expander_hidden_dim=16)},
    "ace": {},
    "mae": {**at("network_def", decoder_dim=8, decoder_layers=1, decoder_heads=2)},
    "dino": {**at("network_def", head_dim=8, bottleneck_dim=4, num_prototypes=8)},
    "radiograph_classification": {"encoder": "vit"},
    "radiograph_segmentation": {"encoder": "vit", "network_def::channels": 8},
    "radiograph_landmarks": {"encoder": "vit", "network_def::channels": 8},
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A clone's bundles in a folder of their own, with which the test starts; what they tune is given back."""
    precision = torch.get_float32_matmul_precision()
    monkeypatch.chdir(copy_bundles(tmp_path))
    yield tmp_path
    torch.set_float32_matmul_precision(precision)


def write_weights(bundle: str, **settings: Any) -> tuple[torch.nn.Module, Path]:
    """The network that inference.json uses, not trained, and its file."""
    network, description = (
        new_detector(**settings) if bundle == "afire" else new_network(bundle, **settings)
    )
    path = Path(f"bundles/{bundle}/models/{'anomaly/' if bundle == 'afire' else ''}model.pt")
    return network, save_network(network, path, description)


@pytest.mark.parametrize("workflow_type", ["train", "inference"])
@pytest.mark.parametrize("bundle", BUNDLES)
def test_load_from_another_folder(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, bundle: str, workflow_type: str
) -> None:
    """As after a download: ``bundle_dir`` holds the bundle's folder, the program runs somewhere else."""
    network, description = new_network(bundle)
    save_network(network, f"bundles/{bundle}/models/model.pt", description)
    # what builds the network from the file must know where that is
    place = (
        {"bundle_root": str(workspace / "bundles" / bundle)}
        if workflow_type == "inference"
        else None
    )
    elsewhere = workspace / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    folder = workspace / "bundles"
    loaded = load(
        bundle,
        bundle_dir=folder,
        source="github",
        workflow_type=workflow_type,
        device="cpu",
        args_file=place,
    )
    expected = network.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    assert not list(elsewhere.iterdir()), "to load is not to run: nothing is written"
    images = torch.rand(1, 1, 128, 128)
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(images), network(images))


def test_a_zipped_bundle_is_unpacked_and_read(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form of a release: ``<name>.zip`` with the folder ``<name>``, read without a network."""
    network, _ = write_weights("radiograph_classification")
    pack_bundle("bundles/radiograph_classification", "dist")
    (archive,) = Path("dist").glob("*.zip")
    renamed = archive.rename("radiograph_classification.zip")  # MONAI wants the folder's name
    parser = load_bundle_config(str(renamed), "inference.json")
    assert parser.get("_meta_")["version"] in archive.name
    with zipfile.ZipFile(renamed) as file:
        file.extractall("downloaded")
    loaded = load(
        "radiograph_classification", bundle_dir="downloaded", source="github", device="cpu"
    )
    assert torch.equal(loaded.state_dict()["thresholds"], network.state_dict()["thresholds"])
    assert not Path("models").exists()


@pytest.mark.parametrize("bundle", BUNDLES)
def test_workflows_of_both_types(workspace: Path, bundle: str) -> None:
    """Training, then inference with what it has saved, by the objects of a Python program."""
    root = f"bundles/{bundle}"
    abnormal = 0.0 if bundle == "afire" else 0.75
    phantom = {
        "num_patients": {"training": 8, "validation": 4, "test": 2},
        "image_size": 64,
        "seed": 0,
    }
    settings = {**ENCODER, **NETWORK[bundle], "phantom": {**phantom, "abnormal_fraction": abnormal}}
    if bundle == "ace":
        settings |= {"grid": 10, "cell": 4}
    if bundle == "dino":
        settings |= {"make_crops::local_size": 16}
    run = {"epochs": 1, "batch_size": 4, "train::run::val_interval": 1} | (
        {"train::dataloader::min_batches": 1} if bundle in TASKS else {}
    )
    train = create_workflow(
        config_file=f"{root}/configs/train.json", workflow_type="train", **settings, **run
    )
    assert train.check_properties() in (None, [])
    train.run()
    train.finalize()
    if bundle == "afire":
        shutil.copytree(last_run(bundle) / "models", f"{root}/models")
        _, weights = write_weights(bundle, **ENCODER, **NETWORK[bundle])
    else:
        weights = last_run(bundle) / "models/model.pt"
    chosen = {"phantom": settings["phantom"], "ckpt_path": str(weights)}
    infer = create_workflow(
        config_file=f"{root}/configs/inference.json", workflow_type="inference", **chosen
    )
    assert infer.check_properties() in (None, [])
    infer.evaluator.run()  # without the workflow's own run(), as MONAI Label and Deploy use it
    saved = torch.load(weights, weights_only=True)
    used = (
        infer.parser.get_parsed_content("detector_def") if bundle == "afire" else infer.network_def
    ).state_dict()
    assert all(
        torch.equal(used[name], value)
        for name, value in saved.items()
        if not name.endswith(("thresholds", "normal_scores", "calibration_scores"))
    )
    assert [*last_run(bundle).rglob("*.csv"), *last_run(bundle).rglob("*.png")]
    infer.finalize()


@pytest.mark.slow
@pytest.mark.parametrize("bundle", BUNDLES)
def test_export_as_a_user_runs_it(workspace: Path, bundle: str) -> None:
    settings = {**ENCODER, **NETWORK[bundle]}
    network, path = write_weights(bundle, **settings)
    config = f"bundles/{bundle}/configs/inference.json"
    weights = {"run_id": "export", "ckpt_path": str(path)}
    train_in_process(config, weights)
    train_in_process(config, {**weights, "export_path": str(path.with_suffix(".pt2"))})
    (exported_file,) = Path(f"runs/{bundle}").rglob("model.onnx")
    session = onnxruntime.InferenceSession(exported_file, providers=["CPUExecutionProvider"])
    program = torch.export.load(path.with_suffix(".pt2")).module()
    for batch in (1, 3):
        images = torch.rand(batch, 1, 32, 32)
        with torch.no_grad():
            outputs, exported = network(images), program(images)
        if bundle != "afire":
            outputs, exported = {"pred": outputs}, {"pred": exported}
        for name, expected in outputs.items():
            (value,) = session.run([name], {"image": images.numpy()})
            scale = float(expected.abs().max())
            torch.testing.assert_close(torch.from_numpy(value), expected, rtol=0, atol=1e-4 * scale)
            torch.testing.assert_close(exported[name], expected, rtol=0, atol=1e-4 * scale)
    notes = {
        entry.key: json.loads(entry.value) for entry in onnx.load(exported_file).metadata_props
    }
    if bundle == "afire":
        assert tuple(notes["scores"]) == SCORE_NAMES
    if bundle == "radiograph_classification":
        assert len(notes["class_names"]) == len(notes["thresholds"]) == 5


@pytest.mark.parametrize("bundle", BUNDLES)
def test_ckpt_export_by_tracing(workspace: Path, bundle: str) -> None:
    """TorchScript, where a tool of the Model Zoo wants it, as docs/other_programs.md gives the command."""
    settings = {**ENCODER, **NETWORK[bundle]}
    network, description = new_network(bundle, **settings)
    save_network(network, "model.pt", description)
    path = "network_def::path" if bundle == "afire" else "ckpt_path"
    ckpt_export(
        config_file=f"bundles/{bundle}/configs/inference.json",
        meta_file=f"bundles/{bundle}/configs/metadata.json",
        ckpt_file="model.pt",
        filepath="model.ts",
        use_trace=True,
        input_shape=[1, 1, 32, 32],
        **{path: "model.pt"},
    )
    images = torch.rand(1, 1, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.load("model.ts")(images), network.eval()(images))


def test_export_without_weights_says_what_to_do(workspace: Path) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011  MONAI's parser wraps what it meets
        train_in_process(
            "bundles/radiograph_landmarks/configs/inference.json", {"run_id": "export"}
        )
    assert "fine-tune on your own images first" in all_messages(error.value)


@pytest.mark.parametrize("bundle", BUNDLES)
def test_pushed_bundle_has_a_model_card_and_nothing_private(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, bundle: str
) -> None:
    """What ``push_to_hf_hub`` would upload: everything in the folder that it is given."""
    root = workspace / "bundles" / bundle
    private = (
        "models/checkpoint.pt",
        "models/anomaly/checkpoint.pt",
        "output/scores.csv",
    )
    for name in (
        *private,
        "data/phantom/patient.png",
        "models/model.pt",
        "models/.model.pt.x1.tmp",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    packed = pack_bundle(root, "dist")
    hub = SimpleNamespace(
        create_repo=lambda **_: None, upload_folder=lambda repo_id, folder_path: folder_path
    )
    monkeypatch.setattr(monai.bundle.scripts.huggingface_hub, "HfApi", lambda token=None: hub)
    pushed = Path(push_to_hf_hub(repo="user/bundle", name=bundle, bundle_dir="dist"))
    names = {path.relative_to(pushed).as_posix() for path in pushed.rglob("*") if path.is_file()}
    assert {
        "README.md",
        "LICENSE",
        "configs/metadata.json",
        "configs/inference.json",
        "models/model.pt",
    } <= names
    assert not [name for name in names if re.search("output|data/|checkpoint|tmp", name)]
    version = json.loads((pushed / "configs/metadata.json").read_text())["version"]
    with zipfile.ZipFile(packed.parent / f"{bundle}_v{version}.zip") as file:
        zipped = {
            name.removeprefix(f"{bundle}/") for name in file.namelist() if not name.endswith("/")
        }
    assert zipped == names - {"README.md"}
    card = ModelCard.load(pushed / "README.md")
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "monai")
    assert "monai" in card.data.tags
    for heading in ZOO_HEADINGS:
        assert f"\n## {heading}\n" in card.text, heading
    assert "not for clinical use" in card.text.lower()
    if bundle in ("peac", "ace"):
        assert "US 2025/0272962" in card.text
    links = [
        link
        for link in re.findall(r"\]\(([^)#]+)[)#]", card.text)
        if not link.startswith(("http:", "https:"))
    ]
    assert [link for link in links if not (pushed / link).exists()] == []


def test_bundle_without_weights_is_not_packed(workspace: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"afire has no models/model\.pt"):
        pack_bundle("bundles/afire", "dist")
    assert not Path("dist").exists()


@pytest.mark.parametrize("url", ["https://example.org/v1/", ""])
def test_large_files_are_listed_for_the_model_zoo(workspace: Path, url: str) -> None:
    models = Path("bundles/ace/models")
    models.mkdir()
    for name, size in (
        ("model.pt", 25 * 2**20 + 1),
        ("small.pt", 25 * 2**20),
        ("checkpoint.pt", 26 * 2**20),
    ):
        with open(models / name, "wb") as file:
            file.truncate(size)
    packed = pack_bundle("bundles/ace", "dist", url)
    (listed,) = ConfigParser.load_config_file(str(packed / "large_files.yml"))["large_files"]
    assert listed == {
        "path": "models/model.pt",
        "url": "https://example.org/v1/models/model.pt" if url else "",
        "hash_val": hashlib.sha256(bytes(25 * 2**20 + 1)).hexdigest(),
        "hash_type": "sha256",
    }
    with zipfile.ZipFile(next(Path("dist").glob("*.zip"))) as file:
        assert {"ace/large_files.yml", "ace/models/model.pt"} <= set(file.namelist())


def test_what_is_not_large_is_not_listed(workspace: Path) -> None:
    Path("bundles/ace/models").mkdir()
    Path("bundles/ace/models/model.pt").touch()
    assert not (pack_bundle("bundles/ace", "dist") / "large_files.yml").exists()
