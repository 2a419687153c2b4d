# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bundles as others get them: loaded from a folder, exported, packed without private files, with a model card."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import monai.bundle
import onnx
import onnxruntime
import pytest
import torch
from conftest import REPOSITORY_ROOT, SHARED_IS_MISSING
from huggingface_hub import ModelCard
from imported_processes import run_python
from monai.bundle import ConfigParser, create_workflow, load, push_to_hf_hub, run

from integration.bundle_runs import (
    copy_bundles,
    environment,
    new_detector,
    new_network,
    packaging,
)
from integration.tiny_runs import BUNDLES, CONFIGS, IMAGES, config_files, in_fast_suite
from monai_afire.networks import save_network

# of the Model Zoo's template for a bundle's README
ZOO_HEADINGS = (
    "Authors",
    "Tags",
    "Model Description",
    "Data",
    "Performance",
    "Training",
    "Limitations",
    "References",
    "License",
)

COUNTS = {"phantom::num_patients": {"training": 8, "validation": 4, "test": 2}}


@pytest.fixture
def workspace(folder: Path) -> Path:
    """A clone's bundles in the folder in which the test starts."""
    return copy_bundles(folder)


def write_weights(bundle: str) -> torch.nn.Module:
    """The network that inference.json uses, not trained, in the file model.pt."""
    network, description = new_detector() if bundle == "afire" else new_network(bundle)
    save_network(network, "model.pt", description)
    return network


@pytest.mark.parametrize("bundle", BUNDLES)
def test_load_from_another_folder(folder: Path, bundle: str) -> None:
    """As after a download: ``bundle_dir`` holds the bundle's folder, the program runs somewhere else."""
    source = CONFIGS[bundle].parent
    loaded = load(
        bundle,
        bundle_dir=source.parent,
        source="github",
        workflow_type="inference",
        device="cpu",
        args_file={"bundle_root": str(source)},
    )
    expected = torch.load(source / "models/model.pt", weights_only=True)
    found = loaded.state_dict()
    assert found.keys() == expected.keys()
    assert all(
        torch.equal(found[name], value.to(found[name].dtype)) for name, value in expected.items()
    )
    assert not list(folder.iterdir()), "to load is not to run: nothing is written"


@pytest.mark.parametrize("bundle", in_fast_suite("afire"))
@pytest.mark.parametrize("kind", ["train", "inference"])
def test_workflows_have_the_properties_that_monai_wants(bundle: str, kind: str) -> None:
    files = config_files(bundle, kind)
    root = str(CONFIGS[bundle].parent)
    workflow = create_workflow(
        config_file=files, workflow_type=kind, bundle_root=root, **{"device": "cpu", **COUNTS}
    )
    assert workflow.check_properties() in (None, [])
    workflow.finalize()


@pytest.mark.parametrize("bundle", in_fast_suite("mae"))
def test_exported_graphs_give_the_outputs_of_the_network(bundle: str) -> None:
    network = write_weights(bundle)
    use = {"weights": "model.pt", "bundle_root": str(CONFIGS[bundle].parent), "device": "cpu"}
    for path in ("model.onnx", "model.pt2"):
        run("export", config_file=config_files(bundle, "inference"), **use, export_path=path)
    torch.set_float32_matmul_precision("highest")  # a run chooses another one
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    program = torch.export.load("model.pt2").module()
    for batch in (1, 3):
        images = torch.rand(batch, 1, IMAGES["image_size"], IMAGES["image_size"])
        with torch.no_grad():
            outputs, exported = network(images), program(images)
        if bundle != "afire":
            outputs, exported = {"pred": outputs}, {"pred": exported}
        for name, expected in outputs.items():
            (value,) = session.run([name], {"image": images.numpy()})
            scale = float(expected.abs().max())
            torch.testing.assert_close(torch.from_numpy(value), expected, rtol=0, atol=1e-4 * scale)
            torch.testing.assert_close(exported[name], expected, rtol=0, atol=1e-4 * scale)
    properties = onnx.load("model.onnx").metadata_props
    notes = {entry.key: json.loads(entry.value) for entry in properties}
    assert notes["description"]["preprocessing"]["image_size"] == IMAGES["image_size"]
    if bundle == "afire":
        assert tuple(notes["scores"]) == network.score_names
    if bundle == "radiograph_classification":
        assert len(notes["class_names"]) == len(notes["thresholds"]) == 5
        assert notes["label_kind"] == "multilabel"


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_pushed_bundle_has_a_model_card_and_nothing_private(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, bundle: str
) -> None:
    """What ``push_to_hf_hub`` would upload: everything in the folder that it is given."""
    root = workspace / "bundles" / bundle
    private = ["models/checkpoint.pt", "output/scores.csv", "data/phantom/patient.png"]
    for name in (*private, "models/model.pt", "models/.model.pt.x1.tmp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    packaging().copy_bundle(root, Path("dist", bundle))
    hub = SimpleNamespace(
        create_repo=lambda **_: None, upload_folder=lambda repo_id, folder_path: folder_path
    )
    monkeypatch.setattr(monai.bundle.scripts.huggingface_hub, "HfApi", lambda token=None: hub)
    pushed = Path(push_to_hf_hub(repo="user/bundle", name=bundle, bundle_dir="dist"))
    names = {path.relative_to(pushed).as_posix() for path in pushed.rglob("*") if path.is_file()}
    needed = {"README.md", "LICENSE", "models/model.pt"}
    needed |= {f"configs/{name}.json" for name in ("metadata", "inference")}
    assert needed <= names
    assert not [name for name in names if re.search("output|data/|checkpoint|tmp", name)]
    card = ModelCard.load(pushed / "README.md")
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "monai")
    for heading in ZOO_HEADINGS:
        assert f"\n## {heading}\n" in card.text, heading
    assert "not for clinical use" in card.text.lower()
    if bundle in ("peac", "ace"):
        assert "US 2025/0272962" in card.text
    links = re.findall(r"\]\(([^)#]+)[)#]", card.text)
    own = [link for link in links if not link.startswith(("http:", "https:"))]
    assert [link for link in own if not (pushed / link).exists()] == []


def test_large_files_are_listed_for_the_model_zoo(workspace: Path) -> None:
    limit = 25 * 2**20
    with pytest.raises(FileNotFoundError, match=r"models/model\.pt"):
        packaging().copy_bundle(Path("bundles/ace"), Path("dist"))
    assert not Path("dist").exists()
    Path("bundles/ace/models").mkdir()
    for name, size in {"model": limit + 1, "small": limit, "checkpoint": limit + 1}.items():
        with open(f"bundles/ace/models/{name}.pt", "wb") as file:
            file.truncate(size)
    packaging().copy_bundle(Path("bundles/ace"), Path("dist"), "https://example.org/v1/")
    (listed,) = ConfigParser.load_config_file("dist/large_files.yml")["large_files"]
    assert listed == {
        "path": "models/model.pt",
        "url": "https://example.org/v1/models/model.pt",
        "hash_val": hashlib.sha256(bytes(limit + 1)).hexdigest(),
        "hash_type": "sha256",
    }


@pytest.mark.slow
@pytest.mark.parametrize("bundle", ["mae", "radiograph_segmentation"])
def test_a_bundle_keeps_the_rules_of_the_model_zoo(tmp_path: Path, bundle: str) -> None:
    """By the zoo's own tool, on the bundle as it is published."""
    shared = os.environ.get("MONAI_AFIRE_SHARED", REPOSITORY_ROOT.parent / "shared")
    tool = Path(shared) / "tools/check_bundle.py"
    if not tool.is_file():
        pytest.skip(SHARED_IS_MISSING)
    source, target = CONFIGS[bundle].parent, tmp_path / "bundles" / bundle
    packaging().copy_bundle(source, target, "https://example.org")
    for path in tmp_path.glob("bundles/*/configs/*.json"):
        # the tool builds the data sets of every config: a few phantoms do, in eight batches for MAE's accumulation
        text = path.read_text()
        text = re.sub(r'("(?:training|validation|test)": )\d+(?=[,\s])', r"\g<1>16", text)
        text = re.sub(r'("batch_size": )\d+', r"\g<1>2", text)
        # encoders of the papers' depth and a small width, which draw their weights in no time
        text = re.sub(r'("encoder_def::hidden_size": )768', r"\g<1>48", text)
        text = re.sub(r'("drop_path_rate": 0.1)(\n)', r'\g<1>,\n        "embed_dim": 32\2', text)
        path.write_text(text)
    words = [str(tool), f"bundles/{bundle}", "--repo-root", str(tmp_path)]
    checked = run_python(words, tmp_path, environment(), timeout=600)
    problems = [line for line in checked.stdout.splitlines() if not line.startswith("ok")]
    assert checked.returncode == 0, "\n".join(problems)
