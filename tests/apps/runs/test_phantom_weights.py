# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights of phantoms refuse radiographs, in every bundle, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles.bundle_runs import REPOSITORY_ROOT, all_messages, write_images
from monai.bundle import run
from torch import nn

from monai_afire.apps.phantom import PhantomSet
from monai_afire.apps.runs import checked_items
from monai_afire.data import bundle_items
from monai_afire.networks import ModelFile, save_network
from monai_afire.networks.weights.model_file import read_description

BUNDLES = sorted(path.parent.parent for path in REPOSITORY_ROOT.glob("bundles/*/models/model.pt"))


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


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda folder: folder.name)
def test_the_weights_of_every_bundle_refuse_radiographs(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = bundle / "models" / "model.pt"
    assert read_description(weights).trained_on == "phantoms"
    write_images(tmp_path / "images", 2)
    before = sorted(tmp_path.rglob("*"))
    configs = [f"{bundle}/configs/inference.json"]
    if bundle.name == "afire":
        configs += [f"{bundle}/configs/released.json", f"{bundle}/configs/restore.json"]
    with pytest.raises(Exception) as refusal:  # noqa: PT011  the resolver's, with the cause in it
        run(
            config_file=configs,
            bundle_root=str(bundle),
            ckpt_path=str(weights),
            dataset_dir="images",
            output_dir="out",
        )
    message = all_messages(refusal.value)
    assert "was trained on drawn phantoms alone" in message
    assert "train.json" in message
    assert sorted(tmp_path.rglob("*")) == before
