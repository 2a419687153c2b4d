# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights of phantoms refuse radiographs, in every bundle, before anything is written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from bundles.bundle_runs import REPOSITORY_ROOT, all_messages, write_images
from monai.bundle import ConfigParser, run
from monai_afire.apps.runs import checked_items, run_weights
from torch import nn

from monai_afire.apps.phantom import PhantomSet
from monai_afire.data import bundle_items
from monai_afire.networks import ModelFile, save_network
from monai_afire.networks.weights.model_file import read_description
from monai_afire_cli.options.words import option_words
from monai_afire_cli.process.starting import DOOR

WEIGHTS = sorted(REPOSITORY_ROOT.glob("bundles/*/models/model.pt"))
RELEASED = {
    "radiograph_classification": ["nih_findings.pt"],
    "radiograph_landmarks": [],
    "radiograph_segmentation": ["lungs_and_heart.pt"],
}
OF_PHANTOMS = [path.parent.parent for path in WEIGHTS if path.parts[-3].startswith("radiograph_")]


def model_file(folder: Path, trained_on: str | None) -> ModelFile:
    path = save_network(nn.Linear(1, 1), folder / "model.pt", {"trained_on": trained_on})
    return ModelFile(path, hint="train it first")


def test_only_radiographs_for_weights_of_phantoms_are_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "images", 2)
    radiographs = bundle_items("test", tmp_path / "images")
    arguments = {"num_patients": {"test": 1}, "image_size": 64, "progress": False}
    phantoms = bundle_items("test", phantom=PhantomSet(tmp_path / "phantom", arguments))
    of_phantoms = model_file(tmp_path, "phantoms")
    with pytest.raises(ValueError, match=r"model\.pt was trained on drawn.*image_0\.png.*train it"):
        checked_items(of_phantoms, [*phantoms, *radiographs])
    checked_items(of_phantoms, phantoms)
    checked_items(of_phantoms, radiographs, phantom_weights=True)
    for known in ("radiographs", None):
        checked_items(model_file(tmp_path / str(known), known), radiographs)


@pytest.mark.parametrize("weights", WEIGHTS, ids=lambda path: path.parts[-3])
def test_weights_say_of_what_images_their_card_says(weights: Path) -> None:
    card = (weights.parents[1] / "docs" / "README.md").read_text(encoding="utf-8")
    section = card.split("`models/model.pt` (", 1)[1].split("\n\n", 1)[0]
    is_of_nih = "training images" in section and "of NIH ChestX-ray14" in section
    assert is_of_nih != ("**drawn phantoms**" in section)
    expected = "radiographs" if is_of_nih else "phantoms"
    assert read_description(weights).trained_on == expected


@pytest.mark.parametrize("bundle", OF_PHANTOMS, ids=lambda folder: folder.name)
def test_weights_of_phantoms_that_come_with_a_bundle_refuse_radiographs(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = bundle / "models" / "model.pt"
    write_images(tmp_path / "my images", 2)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Exception) as refusal:  # noqa: PT011  the resolver's, with the cause in it
        run(
            config_file=f"{bundle}/configs/inference.json",
            bundle_root=str(bundle),
            ckpt_path=str(weights),
            dataset_dir="my images",
            output_dir="out",
        )
    message = all_messages(refusal.value)
    assert "was trained on drawn phantoms alone" in message
    command = re.search(r"\((python -m monai.bundle run .+?)\)", message)
    assert command is not None
    assert option_words(shlex.split(command[1])[4:]) == {
        "config_file": f"{bundle}/configs/train.json",
        "bundle_root": str(bundle),
        "dataset_dir": "my images",
        "datalist": "LABELS.json",
    }
    released = re.findall(r"--ckpt_path (\S+)\)", message)
    assert [Path(path).name for path in released] == RELEASED[bundle.name]
    assert all(Path(path).is_file() for path in released)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_fits_detectors_lists_and_bundles_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DOOR, "1")
    images = [{"image": "a.dcm"}]

    def refused(task: str, bundle: Path, **given: str) -> str:
        description = {"task": task, "trained_on": "phantoms"}
        path = save_network(nn.Linear(1, 1), tmp_path / "model.pt", description)
        with pytest.raises(ValueError, match="phantoms alone") as refusal:
            checked_items(ModelFile(path, task), images, bundle_root=bundle, **given)
        return str(refusal.value)

    afire = REPOSITORY_ROOT / "bundles" / "afire"
    said = refused("anomaly detector", afire, dataset_dir="in")
    assert "run afire train finetune_anomaly fit_encoder --encoder_weights released" in said
    assert "released/detector.safetensors" in said
    said = refused("pre-trained AFiRe network", afire, datalist="list.json")
    assert "(monai-afire run afire train --datalist list.json)" in said
    assert "leave --weights_of and --ckpt_path out" in said  # the bundle's own are of radiographs
    own = tmp_path / "my bundle"
    own.mkdir()
    assert f"monai-afire run '{own}' train " in refused("classifier", own, dataset_dir="in")


@pytest.mark.parametrize(
    ("given", "file"),
    [
        ({}, "models/model.pt"),
        ({"dataset_dir": "images"}, "released/nih_findings.pt"),
        ({"datalist": "labels.json"}, "released/nih_findings.pt"),
        ({"dataset_dir": "images", "weights_of": "own.pt"}, "own.pt"),
    ],
)
def test_released_findings_answer_for_radiographs_where_no_weights_are_named(
    given: dict[str, str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.pt").touch()
    bundle = REPOSITORY_ROOT / "bundles" / "radiograph_classification"
    parser = ConfigParser()
    parser.read_config(str(bundle / "configs" / "inference.json"))
    parser.update({"bundle_root": str(bundle), **given})
    assert parser.get_parsed_content("ckpt_path").endswith(file)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("trained_on", "file"),
    [
        ("phantoms", "released.pt"),
        ("radiographs", "model.pt"),
        (None, "model.pt"),
        ("missing", "released.pt"),
    ],
)
def test_own_weights_in_a_bundle_come_before_released_ones(
    trained_on: str | None, file: str, tmp_path: Path
) -> None:
    own = tmp_path / "model.pt"
    if trained_on != "missing":
        model_file(tmp_path, trained_on)
    found = run_weights(None, "bundle", otherwise=str(own), released=str(tmp_path / "released.pt"))
    assert found == str(tmp_path / file)
    assert run_weights(None, "bundle", otherwise=str(own)) == str(own)
