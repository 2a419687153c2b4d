# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The bundles on pictures in color: crops of a fundus photograph, pre-trained on, graded and judged."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from bundles.bundle_runs import (
    LATEST,
    at,
    copy_bundles,
    last_run,
    saved_weights,
    train_in_process,
)
from PIL import Image
from skimage.data import retina
from sklearn.metrics import cohen_kappa_score

from monai_afire.apps.readers.__main__ import main

SHAPE = {
    "image_size": 32,
    "patch_size": 8,
    **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
}
MAE = {**at("network_def", decoder_dim=16, decoder_layers=1, decoder_heads=2)}
AFIRE = {
    **at(
        "network_def",
        head_dim=16,
        num_clusters=8,
        decoder_dim=16,
        decoder_layers=1,
        decoder_heads=2,
    ),
}
RUN = {
    "epochs": 1,
    "batch_size": 4,
    "train::run::val_interval": 1,
    "device": "cpu",
    "cache": "none",
    "num_workers": 0,
}
GRADES = ["dark", "medium", "bright"]
SECTIONS = {"training": 12, "validation": 6, "test": 6}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error:.*color picture:UserWarning")]


@pytest.fixture
def fundus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A clone's bundles, and crops of a photograph of the retina, graded 0 to 2 by their brightness."""
    monkeypatch.chdir(copy_bundles(tmp_path))
    photograph, rng = retina(), np.random.default_rng(0)
    content: dict = {"labels": GRADES}
    for section, number in SECTIONS.items():
        content[section] = []
        for index in range(number):
            row, column = rng.integers(300, 900, 2)
            name = f"{section}_{index}.png"
            Image.fromarray(photograph[row : row + 96, column : column + 96]).save(name)
            item = {
                "image": name,
                "label": index % 3,
                "patient_id": name,
                "abnormal": int(section == "test" and index % 2),
            }
            content[section].append(item)
    Path("list.json").write_text(json.dumps(content))
    return {"dataset_dir": ".", "datalist": "list.json"}


def configs(bundle: str, *names: str) -> list[str]:
    return [f"bundles/{bundle}/configs/{name}.json" for name in (*names, "color")]


def test_afire_learns_adapts_and_judges(fundus: dict[str, str]) -> None:
    train_in_process(configs("afire", "train"), {**SHAPE, **AFIRE, **RUN, **fundus})
    assert saved_weights("afire")["encoder.patch_embedding.patch_embeddings.weight"].shape == (
        24,
        3,
        8,
        8,
    )
    adapting = {**RUN, **LATEST, **fundus, "train::lr_schedule::warmup_epochs": 0}
    train_in_process(
        ["bundles/afire/configs/train.json", "bundles/afire/configs/finetune_anomaly.json"],
        adapting,
    )
    inference = {
        **LATEST,
        **fundus,
        "device": "cpu",
        "num_workers": 0,
        "saved": ["overlays"],
        "picture_size": 96,
    }
    train_in_process("bundles/afire/configs/inference.json", inference)
    assert len(list((last_run("afire") / "overlays").rglob("*.jpg"))) == SECTIONS["test"]


@pytest.mark.parametrize("bundle", ["ace", "peac", "mae", "dino"])
def test_the_other_methods_learn(bundle: str, fundus: dict[str, str]) -> None:
    sizes = {
        "ace": {"grid": 8, "cell": 4},
        "peac": {"grid": 5, **at("network_def", expander_dim=16, expander_hidden_dim=16)},
        "mae": MAE,
        "dino": {
            "make_crops::local_size": 16,
            "make_crops::num_local": 1,
            **at("network_def", num_prototypes=8, head_dim=16, bottleneck_dim=8),
        },
    }
    train_in_process(configs(bundle, "train"), {**SHAPE, **sizes[bundle], **RUN, **fundus})
    weights = saved_weights(bundle)
    [name] = [
        name for name in weights if name.endswith("encoder.patch_embedding.patch_embeddings.weight")
    ][-1:]
    assert weights[name].shape == (24, 3, 8, 8)


def test_grading_starts_from_color_weights(fundus: dict[str, str]) -> None:
    steps = {
        "train::lr_schedule::warmup_epochs": 0,
        "train::dataloader::min_batches": 1,
        "label_kind": "multiclass",
    }
    train_in_process(
        configs("radiograph_classification", "train"),
        {"encoder": "vit", **SHAPE, **RUN, **fundus, **steps},
    )
    used = {**LATEST, **fundus, "device": "cpu", "num_workers": 0}
    # an evaluation and an inference know from the weights that images are in color and classes exclusive
    folder = "bundles/radiograph_classification/configs"
    train_in_process(
        [f"{folder}/train.json", f"{folder}/evaluate.json"], {**used, "output_dir": "judged"}
    )
    metrics = json.loads(Path("judged/metrics.json").read_text())
    assert metrics["num_images"] == SECTIONS["test"]
    assert list(metrics["per_class"]) == GRADES
    with Path("judged/predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    true, decided = ([row[key] for row in rows] for key in ("label", "decision"))
    kappa = cohen_kappa_score(true, decided, labels=GRADES, weights="quadratic")
    assert metrics["quadratic_weighted_kappa"] == pytest.approx(kappa)
    assert Path("judged/confusion.png").is_file()
    train_in_process(f"{folder}/inference.json", {**used, "output_dir": "graded"})
    with Path("graded/predictions.csv").open() as file:
        graded = list(csv.DictReader(file))
    assert len(graded) == SECTIONS["test"]
    for row in graded:
        probabilities = {name: float(row[f"probability_{name}"]) for name in GRADES}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-3)
        assert row["decision"] == max(probabilities, key=probabilities.__getitem__)


def test_pairs_of_photographs_are_compared(fundus: dict[str, str]) -> None:
    """FIRE's files, of crops of one photograph whose offset is known: through the command to the report."""
    photograph, shift = retina(), (24, 12)
    Path("FIRE").mkdir()
    for number, (row, column) in enumerate([(400, 500), (600, 700), (500, 800)], start=1):
        for end, (down, right) in enumerate([(0, 0), shift], start=1):
            crop = photograph[row + down : row + down + 96, column + right : column + right + 96]
            Image.fromarray(crop).save(f"FIRE/S0{number}_{end}.jpg")
        points = [(x, y) for x in (40, 60) for y in (50, 70)]
        lines = [f"{x} {y} {x - shift[1]} {y - shift[0]}" for x, y in points]
        Path(f"FIRE/control_points_S0{number}_1_2.txt").write_text("\n".join(lines))
    assert main(["fire", "--root", "FIRE", "--output", "fire.json"]) == 0
    train_in_process(configs("mae", "train"), {**SHAPE, **MAE, **RUN, **fundus})
    used = {**LATEST, "datalist": "fire.json", "device": "cpu", "num_workers": 0}
    train_in_process(
        [f"bundles/mae/configs/{name}.json" for name in ("inference", "analysis")], used
    )
    report = json.loads((last_run("mae") / "report.json").read_text())
    [table] = [
        study["table"]
        for study in report["studies"]
        if study["title"] == "Places in pairs of images"
    ]
    assert set(table) == {"MAE", "untrained", "raw pixels", "same place"}
    # 96 pixels of the file are 32 of the input
    assert table["same place"]["error"] == pytest.approx(np.hypot(*shift) / 3, abs=1e-3)
    assert all(0 < row["error"] < 32 for row in table.values())
