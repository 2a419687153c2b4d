# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Classification into exclusive classes, from the phantom's own table: train, evaluate, inference, export."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from bundles.bundle_runs import (
    LATEST,
    TINY_ENCODER,
    all_messages,
    copy_bundles,
    last_run,
    saved_weights,
    train_in_process,
)
from monai.bundle import run

from monai_afire.apps.phantom import export_phantom
from monai_afire.networks import ModelFile

ROOT = "bundles/radiograph_classification"
ENCODER = {**TINY_ENCODER, "encoder": "vit"}
PATIENTS = {"training": 12, "validation": 6, "test": 9}
NAMES = ["none", "one", "several"]
RUN = {
    "epochs": 2,
    "batch_size": 4,
    "train::dataloader::min_batches": 2,
    "report::num_bootstraps": 10,
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's bundles, and a list of phantoms by their number of findings, in a folder of their own."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    datalist = export_phantom(
        "phantom", PATIENTS, image_size=32, abnormal_fraction=0.7, seed=0, progress=False
    )
    content = json.loads(Path(datalist).read_text())
    sections = {name: content[name] for name in PATIENTS}
    for items in sections.values():
        for number, item in enumerate(items):
            # by the findings; the first three have each class, whatever was drawn
            item["label"] = number if number < 3 else min(sum(item["label"]), 2)
        items[3]["label"] = -1
    write({"labels": NAMES, **sections})
    return tmp_path


def write(content: dict[str, Any]) -> None:
    Path("list.json").write_text(json.dumps(content))


def settings(**overrides: Any) -> dict[str, Any]:
    data = {"dataset_dir": "phantom", "datalist": "list.json", "label_kind": "multiclass"}
    return {**ENCODER, **data, **overrides}


def train(**overrides: Any) -> dict[str, torch.Tensor]:
    names = {name: value for name, value in RUN.items() if name != "report::num_bootstraps"}
    train_in_process(f"{ROOT}/configs/train.json", settings(**{**names, **overrides}))
    return saved_weights("radiograph_classification")


@pytest.mark.slow
def test_train_evaluate_and_use(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = train()
    assert weights["thresholds"].isnan().all(), "the weights tell what they were trained for"
    assert weights["classifier.weight"].shape == (3, 24)
    model = last_run("radiograph_classification") / "models/model.pt"
    assert ModelFile(model).class_names == NAMES

    train_in_process(
        [f"{ROOT}/configs/{name}.json" for name in ("train", "evaluate")], settings(**RUN, **LATEST)
    )
    assert "quadratic kappa" in capsys.readouterr().out
    output = last_run("radiograph_classification")
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["num_images"] == 8, "the image of an unknown class is left out"
    assert {
        "accuracy",
        "balanced_accuracy",
        "quadratic_weighted_kappa",
        "expected_calibration_error",
    } < set(metrics)
    assert sum(map(sum, metrics["confusion_matrix"])) == 8
    assert len(metrics["mean_auc_interval"]) == 2
    assert (output / "confusion.png").is_file()
    assert (output / "roc.png").is_file()
    with (output / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows[:4]] == [*NAMES, ""]

    run(
        config_file=f"{ROOT}/configs/inference.json",
        dataset_dir="phantom",
        datalist="list.json",
        batch_size=4,
        **LATEST,
    )
    with (last_run("radiograph_classification") / "predictions.csv").open() as file:
        used = list(csv.DictReader(file))
    assert list(used[0]) == ["image", *(f"probability_{name}" for name in NAMES), "decision"]
    for row, other in zip(used, rows, strict=True):
        values = [float(row[f"probability_{name}"]) for name in NAMES]
        assert sum(values) == pytest.approx(1, abs=1e-4)
        assert row["decision"] == NAMES[values.index(max(values))] == other["decision"]

    run("export", config_file=f"{ROOT}/configs/inference.json", **LATEST)
    properties = {
        entry.key: entry.value
        for entry in onnx.load(last_run("radiograph_classification") / "model.onnx").metadata_props
    }
    assert json.loads(properties["label_kind"]) == "multiclass"
    assert json.loads(properties["thresholds"]) == [None] * 3


def test_a_network_of_the_other_kind_is_refused(workspace: Path) -> None:
    train(epochs=1)
    content = json.loads(Path("list.json").read_text())
    for name in PATIENTS:  # an unknown class is no class number of the other kind
        content[name][3]["label"] = 0
    write(content)
    overrides = {**LATEST, **settings(label_kind="multilabel")}
    overrides = {name: overrides[name] for name in overrides if name not in ENCODER}
    configs = [f"{ROOT}/configs/{name}.json" for name in ("train", "evaluate")]
    with pytest.raises(Exception) as error:  # noqa: PT011  MONAI's parser wraps what it meets
        train_in_process(configs, overrides)
    assert "--label_kind: multilabel contradicts" in all_messages(error.value)


@pytest.mark.parametrize(
    ("label", "overrides", "words"),
    [
        ([0, 1, 0], {}, "the list [0, 1, 0]"),
        (3, {}, "class 3"),
        (-2, {}, "class -2"),
        (0.5, {}, "0.5 for the class"),
        (1, {"uncertain": "ones"}, "set uncertain to 'ignore'"),
        (1, {"label_kind": "softmax"}, "label_kind"),
    ],
)
def test_wrong_labels_are_named_before_training(
    workspace: Path, label: Any, overrides: dict[str, Any], words: str
) -> None:
    content = json.loads(Path("list.json").read_text())
    content["training"][4]["label"] = label
    write(content)
    with pytest.raises((Exception, SystemExit)) as error:
        train(**overrides)
    messages = all_messages(error.value)
    assert words in messages
    if not overrides:
        assert Path(content["training"][4]["image"]).name in messages
        assert "numbers from 0 to 2, or -1 (unknown)" in messages
    assert not list(Path("runs").rglob("model.pt"))
