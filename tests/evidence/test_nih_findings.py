# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The benchmark of NIH's findings on a made set: runs resume, and the table compares patients in pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from skimage import img_as_ubyte, io

from monai_afire.apps.phantom import draw_chest_phantom
from monai_afire.networks import LungFinder, save_network
from tests.evidence import nih_findings
from tests.evidence.nih_findings import ARMS, FINDINGS, Recipe, Set, Training, table

RECIPE = Recipe(epochs=3, batch_size=8, warm_head=False)
CNN = replace(ARMS["cnn"], recipe=RECIPE)


@pytest.fixture
def data() -> Set:
    """Sixty images of thirty patients; a finding is the brightness of a column."""
    random = np.random.default_rng(0)
    images = torch.from_numpy(random.uniform(size=(60, 1, 64, 64))).float()
    labels = (random.uniform(size=(60, len(FINDINGS))) < 0.4).astype(np.float32)
    images[:, 0, :, :12] = torch.from_numpy(labels)[:, None] * 0.5 + 0.2
    sections = np.repeat(["training", "validation", "test"], 20)
    patients = [f"{number // 2:08d}" for number in range(60)]
    return Set(pd.DataFrame({"section": sections, "patient_id": patients}), images, labels)


def train(data: Set, file: Path, **changed: Any) -> Training:
    arm = replace(CNN, recipe=replace(RECIPE, **changed))
    return Training(arm, data, data.rows("training"), seed=1, file=file)


def test_a_resumed_training_equals_an_undisturbed_one(data: Set, tmp_path: Path) -> None:
    whole = train(data, tmp_path / "whole.pt")
    expected = whole.run().state_dict()
    interrupted = train(data, tmp_path / "cut.pt")
    interrupted._epoch()
    interrupted._validate()
    interrupted._save()
    torch.manual_seed(99)
    resumed = train(data, tmp_path / "cut.pt")
    assert len(resumed.history) == 2
    for name, value in resumed.run().state_dict().items():
        torch.testing.assert_close(value, expected[name])
    assert resumed.history == whole.history


def test_a_warm_head_starts_at_the_probe(data: Set, tmp_path: Path) -> None:
    training = train(data, tmp_path / "run.pt", warm_head=True)
    features = nih_findings.in_batches(training.network.features, data.images)
    rows = data.rows("validation")
    probe = nih_findings.probe_of(data, features, data.rows("training"))
    assert training.history == [pytest.approx(probe.validation_auc, abs=0.02)]
    training.run()
    kept = nih_findings.mean_auc(
        data.labels[rows], nih_findings.in_batches(training.average, data.images[rows])
    )
    assert kept == pytest.approx(max(training.history))


def test_the_square_around_the_lungs_is_another_set(tmp_path: Path) -> None:
    """Its lungs fill more of the picture than those of the whole image, and each view is cached under its own name."""
    image = draw_chest_phantom(3, image_size=256).image[0]
    io.imsave(tmp_path / "chest.png", img_as_ubyte(np.pad(image, 64)))
    row = {"image": "chest.png", "patient_id": "1", "split": "train", "findings": "Mass|Nodule"}
    pd.DataFrame([row]).to_csv(tmp_path / "manifest.csv", index=False)
    whole, lungs, again = (
        nih_findings.read_set(tmp_path, 64, tmp_path, view) for view in ("image", "lungs", "lungs")
    )
    shares = [LungFinder.released()(each.images)[0, 0].mean() for each in (whole, lungs)]
    assert shares[1] > 1.5 * shares[0]
    assert torch.equal(lungs.images, again.images)
    assert lungs.images.shape == (1, 1, 64, 64)
    assert whole.labels.sum() == 2


def test_fractions_take_whole_patients(data: Set) -> None:
    rows = data.training_rows(0.3, seed=0)
    assert len(rows) == 6
    assert set(np.diff(rows.reshape(3, 2), axis=1).ravel()) == {1}
    assert not np.array_equal(rows, data.training_rows(0.3, seed=1))


def test_the_table_compares_arms_on_the_same_patients(data: Set, tmp_path: Path) -> None:
    rows = np.flatnonzero(data.table["section"] != "training")
    noise = np.random.default_rng(1).normal(size=(len(rows), len(FINDINGS)))
    for name, scores in {
        "cnn": noise,
        "good": data.labels[rows] + 0.1 * noise,
        "same": noise,
    }.items():
        for seed in range(2):
            np.savez_compressed(
                tmp_path / f"{name}_1_{seed}.npz", scores=scores.astype(np.float32), rows=rows
            )
    found = table(data, tmp_path, "test", draws=50, reference="cnn")
    assert found.loc[("1", "good"), "AUC"] == pytest.approx(1.0, abs=0.01)
    assert found.loc[("1", "good"), "p"] < 0.05
    assert found.loc[("1", "same"), "- cnn"] == 0
    assert found.loc[("1", "same"), "p"] == 1
    cnn = found.loc[("1", "cnn")]
    assert cnn["AUC, low"] <= cnn["AUC"] <= cnn["AUC, high"]
    assert cnn["each seed"] == f"{cnn['AUC']:.3f} {cnn['AUC']:.3f}"


def test_arms_are_compared_over_the_seeds_that_both_have(data: Set, tmp_path: Path) -> None:
    rows = np.flatnonzero(data.table["section"] != "training")
    for arm, seeds in {"cnn": 3, "other": 2}.items():
        for seed in range(seeds):
            scores = (
                np.random.default_rng(seed)
                .normal(size=(len(rows), len(FINDINGS)))
                .astype(np.float32)
            )
            np.savez_compressed(tmp_path / f"{arm}_1_{seed}.npz", scores=scores, rows=rows)
    found = table(data, tmp_path, "validation", draws=20, reference="cnn")
    assert found.loc[("1", "other"), "AUC"] != found.loc[("1", "cnn"), "AUC"]
    assert found.loc[("1", "other"), ["- cnn", "- cnn, low", "- cnn, high"]].tolist() == [0, 0, 0]


def test_an_ensemble_is_the_mean_of_its_arms(tmp_path: Path) -> None:
    for name, value in (("cnn", 1.0), ("vit_tiny", 4.0)):
        np.savez(tmp_path / f"{name}_0.1_2.npz", scores=np.full((3, 12), value), rows=np.arange(3))
    nih_findings.write_ensemble("cnn+vit_tiny", 0.1, 2, tmp_path)
    nih_findings.write_ensemble("cnn+residual", 0.1, 2, tmp_path)  # residual has not run
    assert [file.name for file in tmp_path.glob("*+*")] == ["cnn+vit_tiny_0.1_2.npz"]
    with np.load(tmp_path / "cnn+vit_tiny_0.1_2.npz") as content:
        assert (content["scores"] == 2.5).all()
        assert content["rows"].tolist() == [0, 1, 2]


def test_features_of_two_files_of_one_name_are_kept_apart(data: Set, tmp_path: Path) -> None:
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        path = tmp_path / str(seed) / "encoder.pt"
        path.parent.mkdir()
        encoder = nih_findings.encoder_of("vit", 64)
        save_network(encoder, path, {"task": "encoder"})
        arm = replace(ARMS["released_probe"], weights=str(path))
        found.append(nih_findings.cached_features(arm, data, 0, tmp_path))
        again = nih_findings.cached_features(arm, data, 0, tmp_path)
        np.testing.assert_array_equal(found[-1], again)
    assert not np.allclose(*found)
