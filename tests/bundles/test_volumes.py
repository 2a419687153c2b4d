# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles on volumes: CT-like phantoms through every step."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import nibabel
import numpy as np
import pytest
from bundles.bundle_runs import at, copy_bundles, train_in_process
from monai.bundle import ConfigParser

from monai_afire.networks import ModelFile

SIZE = 16
SHAPE = {"image_size": SIZE, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
PHANTOM = {"num_patients": {"training": 12, "validation": 4, "test": 4}, "image_size": 20, "progress": False, "seed": 0}
RUN = {"epochs": 1, "batch_size": 4, "val_interval": 1, "device": "cpu", "cache": "none", "num_workers": 0}
AFIRE = {
    **at("network_def", head_dim=16, num_clusters=8, decoder_dim=12, decoder_layers=1, decoder_heads=2),
}


def configs(bundle: str, *names: str) -> list[str]:
    """A training has the overlay; what uses its weights has the shape from them."""
    overlay = ("volume",) if names == ("train",) else ()
    return [f"bundles/{bundle}/configs/{name}.json" for name in (*names, *overlay)]


def phantom_of(bundle: str) -> dict[str, str]:
    return {"phantom_dir": f"bundles/{bundle}/data/phantom_volume"}


@pytest.mark.slow
def test_afire_from_pretraining_to_heat_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy_bundles(tmp_path))
    phantom = {"phantom": {**PHANTOM, "abnormal_fraction": {"training": 0.0, "validation": 0.5, "test": 0.5}}}
    network = {**SHAPE, **AFIRE}
    train_in_process(configs("afire", "train"), {**network, **RUN, **phantom})
    assert Path("bundles/afire/output/restoration.png").is_file()
    # from here the shape comes with the weights
    size = {"image_size": SIZE, "patch_size": 8, "network_def::decoder_dim": 12}
    adapt = [*configs("afire", "train"), "bundles/afire/configs/finetune_anomaly.json"]
    train_in_process(adapt, {**size, **RUN, "train::lr_schedule::warmup_epochs": 0, **phantom})
    overrides = {**phantom, **phantom_of("afire"), "device": "cpu", "num_workers": 0}
    train_in_process(configs("afire", "inference", "evaluate"), {**overrides, "report::num_bootstraps": 2})
    metrics = json.loads(Path("bundles/afire/output/evaluation/metrics.json").read_text())
    assert metrics["images"] == {"normal": 2, "abnormal": 2}
    assert 0 <= metrics["localization"]["fused"]["pixel_auroc"] <= 1
    assert {name.split(",")[0] for name in metrics["controlled"]} == {"SoftNodule", "CutPaste"}
    train_in_process(configs("afire", "inference", "restore"), {**overrides, "section": "test"})
    check_restored(Path("bundles/afire"))
    train_in_process(configs("afire", "inference"), {**overrides, "saved": ["overlays", "maps"]})
    with Path("bundles/afire/output/inference/scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    [overlay, *_] = sorted(Path("bundles/afire/output/inference/overlays").rglob("*.jpg"))
    assert overlay.stat().st_size > 1000
    [image, *_] = sorted(Path("bundles/afire/data/phantom_volume/images").glob("test*"))
    [heat, *_] = sorted(Path("bundles/afire/output/inference/maps").rglob("*.nii.gz"))
    original, written = nibabel.load(image), nibabel.load(heat)
    assert original.shape == written.shape
    np.testing.assert_allclose(original.affine, written.affine)


def check_restored(bundle: Path) -> None:
    """On the voxels of the file, and in its numbers."""
    [path, *others] = sorted((bundle / "output/restored").rglob("*_restored.nii.gz"))
    assert len(others) == 3
    restored = nibabel.load(path)
    original = nibabel.load(bundle / "data/phantom_volume/images" / path.name.removesuffix("_restored.nii.gz"))
    assert restored.shape == original.shape
    np.testing.assert_allclose(restored.affine, original.affine)
    values = restored.get_fdata()
    assert values.min() >= -1000
    assert values.max() <= 400
    assert np.ptp(values) > 10


METHODS = {
    "peac": {"grid": 3, **at("network_def", expander_dim=16, expander_hidden_dim=16)},
    "ace": {"grid": 5, "cell": 4},
    "mae": {**at("network_def", decoder_dim=12, decoder_layers=1, decoder_heads=2)},
    "dino": {
        "make_crops::local_size": 8,
        "make_crops::num_local": 1,
        **at("network_def", num_prototypes=8, head_dim=16, bottleneck_dim=8),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("bundle", METHODS)
def test_every_method_pretrains_and_infers(bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy_bundles(tmp_path))
    phantom = {**PHANTOM, "num_patients": {"training": 4, "validation": 4, "test": 4}, "abnormal_fraction": 0.0}
    train_in_process(configs(bundle, "train"), {**SHAPE, **METHODS[bundle], **RUN, "phantom": phantom})
    file = ModelFile(f"bundles/{bundle}/models/model.pt")
    assert (file.spatial_dims, file.intensity_window, file.image_size) == (3, [-1000, 400], SIZE)
    used = {"phantom": phantom, **phantom_of(bundle), "section": "test", "device": "cpu", "num_workers": 0}
    train_in_process(configs(bundle, "inference"), used)
    if bundle == "peac":
        check_restored(Path("bundles/peac"))
    else:
        table = Path(f"bundles/{bundle}/output/embeddings/embeddings.csv").read_text().splitlines()
        assert [len(line.split(",")) for line in table] == [1 + 24] * 4


TASKS = {
    "radiograph_segmentation": ({"network_def::channels": 4}, "mean_dice"),
    "radiograph_landmarks": ({"network_def::channels": 4, "window": 5}, "mean_radial_error"),
    "radiograph_classification": ({}, "mean_auc"),
}


@pytest.mark.slow
@pytest.mark.parametrize("bundle", TASKS)
def test_every_task_learns_evaluates_and_infers(bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy_bundles(tmp_path))
    extra, metric = TASKS[bundle]
    numbers = {"training": 4, "validation": 4, "test": 4}
    phantom = {"phantom": {**PHANTOM, "num_patients": numbers, "abnormal_fraction": 0.5}}
    steps = {"train::lr_schedule::warmup_epochs": 0, "min_steps_per_epoch": 1}
    train_in_process(configs(bundle, "train"), {**SHAPE, **extra, **RUN, **steps, **phantom})
    size = {**phantom, **phantom_of(bundle), "device": "cpu", "num_workers": 0}
    train_in_process(configs(bundle, "train", "evaluate"), {**size, "output_dir": "evaluated"})
    found = json.loads(Path("evaluated/metrics.json").read_text())
    assert found["num_images"] == 4, found
    assert metric in found, found
    train_in_process(configs(bundle, "inference"), {**size, "output_dir": "inferred"})
    if bundle == "radiograph_segmentation":
        [image, *_] = sorted(Path(f"bundles/{bundle}/data/phantom_volume/images").glob("test*"))
        [mask, *_] = sorted(Path("inferred/masks/heart").rglob("*.nii.gz"))
        original, written = nibabel.load(image), nibabel.load(mask)
        assert original.shape == written.shape
        np.testing.assert_allclose(original.affine, written.affine)
    if bundle == "radiograph_landmarks":
        with Path("inferred/landmarks.csv").open() as file:
            assert set(next(csv.DictReader(file))) == {"image", "landmark", "x", "y", "z", "peak"}


@pytest.mark.slow
def test_volumes_larger_than_the_input_are_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy_bundles(tmp_path))
    numbers = {"training": 4, "validation": 2, "test": 2}
    phantom = {"phantom": {**PHANTOM, "num_patients": numbers, "abnormal_fraction": 0.0}}
    windows = {"spacing": 15.0, "cover_volume": True}  # of 20 voxels, 26 are made on the longest side
    steps = {"train::lr_schedule::warmup_epochs": 0, "min_steps_per_epoch": 1, "network_def::channels": 4}
    prior = {"network_def::prior": 0.5}  # so short a training leaves it there: something is found everywhere
    bundle = "radiograph_segmentation"
    train_in_process(configs(bundle, "train"), {**SHAPE, **RUN, **steps, **prior, **phantom, **windows})
    file = ModelFile(f"bundles/{bundle}/models/model.pt")
    assert (file.settings["cover_volume"], file.spacing) == (True, 15.0)
    # what the file says need not be given again; the overlap is free
    size = {**phantom, **phantom_of(bundle), "device": "cpu", "num_workers": 0}
    train_in_process(configs(bundle, "train", "evaluate"), {**size, "output_dir": "evaluated"})
    found = json.loads(Path("evaluated/metrics.json").read_text())
    assert found["num_images"] == 2
    train_in_process(configs(bundle, "inference"), {**size, "output_dir": "inferred", "inferer::overlap": 0.5})
    masks = np.stack([nibabel.load(path).get_fdata() for path in sorted(Path("inferred/masks").rglob("*.nii.gz"))])
    assert masks.shape == (10, 20, 20, 20)
    # the middle of 16 voxels of 15 mm is all that a crop would have seen
    affine = np.abs(nibabel.load(next(Path("inferred/masks").rglob("*.nii.gz"))).affine.diagonal()[:3])
    seen = np.ceil(SIZE * 15.0 / affine).astype(int)
    assert (seen < 20).any()
    starts = (20 - seen) // 2
    for axis in np.flatnonzero(seen < 18):
        outside = np.delete(masks, np.arange(starts[axis], starts[axis] + seen[axis]), axis=axis + 1)
        assert outside.any()


@pytest.mark.parametrize("bundle", ["dino", "mae", "radiograph_classification"])
@pytest.mark.parametrize(("spatial_dims", "axis"), [(2, 1), (3, 0)])
def test_mirrored_images_have_left_and_right_exchanged(
    bundle: str, spatial_dims: int, axis: int, repository_root: Path
) -> None:
    """Pictures are rows and columns, volumes go to the right, to the front and up."""
    text = (repository_root / f"bundles/{bundle}/configs/train.json").read_text()
    [expression] = re.findall(r'"spatial_axis": "(.+)"', text)
    parser = ConfigParser({"spatial_dims": spatial_dims, "axis": expression})
    assert parser.get_parsed_content("axis") == axis
