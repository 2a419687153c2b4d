# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The study of components: what its probe finds, and that the command goes on where it was interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from bundles.bundle_runs import at
from PIL import Image

from tests.evidence.component_tables import ROWS, tables
from tests.evidence.real_components import METRICS, between_images, report
from tests.evidence.real_probe import labeled_part, probe

SECTIONS = np.repeat(["training", "validation", "test"], [200, 100, 100])


def labeled(seed: int = 0) -> tuple[pd.DataFrame, np.random.Generator]:
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {"section": SECTIONS, "label": generator.integers(0, 2, len(SECTIONS))}
    ), generator


def test_the_probe_finds_the_one_feature_that_tells() -> None:
    table, generator = labeled()
    features = generator.normal(size=(400, 12)) * 10.0 ** np.arange(-6, 6)  # whatever their scale
    features[:, 3] += 1e-3 * 8 * table["label"]
    found = probe(table, features)
    assert found["auc"] > 0.99
    assert found["accuracy"] > 0.95
    assert found["f1"] > 0.95


def test_the_probe_learns_from_the_training_images_alone() -> None:
    table, generator = labeled()
    features = generator.normal(size=(400, 3))
    told = features.copy()
    # a feature that tells in the test alone
    told[SECTIONS == "test", 0] += 5 * table["label"][SECTIONS == "test"]
    told[SECTIONS == "training", 0] -= 5 * table["label"][SECTIONS == "training"]
    assert probe(table, told)["auc"] < 0.05
    assert 0.3 < probe(table, features)["auc"] < 0.7


def test_few_labels_are_those_of_some_training_patients() -> None:
    table, _ = labeled()
    table["patient"] = [f"p{number // 2}" for number in range(len(table))]
    few, more = (labeled_part(table, fraction, seed=1) for fraction in (0.1, 0.5))
    assert (few.sum(), more.sum()) == (20, 100)  # patients of two images each
    assert (SECTIONS[more] == "training").all()
    assert (more | ~few).all()  # the few are among the more
    assert set(table.loc[few, "label"]) == {0, 1}
    assert set(table.loc[few, "patient"]).isdisjoint(table.loc[~few, "patient"])


def test_the_report_pairs_the_seeds() -> None:
    rows = [
        {"arm": arm, "seed": seed, **dict.fromkeys(METRICS, 0.8 + seed / 100 + better)}
        for arm, better in (("full", 0.0), ("less", -0.02))
        for seed in (0, 1, 2)
    ]
    line = next(
        line.split() for line in report(rows).splitlines() if line.split()[:2] == ["auc", "less"]
    )
    assert line[2:6] == [
        "3",
        "0.79",
        "0.01",
        "-0.02",
    ]  # runs, mean, deviation, difference from the first arm
    assert line[7:9] == ["3", "0"]  # pairs, of which higher


def test_the_tables_say_what_differs() -> None:
    values = {"full": (0.8, 0.82, 0.84), "less": (0.7, 0.72, 0.77), "once": (0.9,)}
    rows = [
        {"arm": arm, "seed": seed, **dict.fromkeys(METRICS, value)}
        for arm, found in values.items()
        for seed, value in enumerate(found)
    ]
    reached, differences = (table.splitlines() for table in tables(pd.DataFrame(rows)))
    assert reached[2].startswith("| full | 3 | 0.820 ± 0.020 | 0.820 ± 0.020 |")
    assert reached[4].startswith("| once | 1 | 0.900 | 0.900 |")
    assert [cell.strip() for cell in differences[2].split("|")][1:5] == [
        "less",
        "-0.090",
        "0.030; 0.012",
        "0 of 3",
    ]
    assert [cell.strip() for cell in differences[3].split("|")][1:5] == [
        "once",
        "+0.080",
        "",
        "1 of 1",
    ]


def test_the_page_has_the_tables_of_the_rows(repository_root: Path) -> None:
    page = (repository_root / "docs/reports/component_ablation.md").read_text(encoding="utf-8")
    for table in tables(pd.read_csv(repository_root / ROWS)):
        assert table in page, (
            "python -m tests.evidence.component_tables prints the tables of the page"
        )


def test_variance_lies_between_images_or_between_places() -> None:
    generator = torch.Generator().manual_seed(0)
    images, places = (
        torch.randn(shape, generator=generator) for shape in ((300, 1, 4), (1, 300, 4))
    )
    for tokens, share in (
        (images.expand(300, 300, 4), 1.0),
        (places.expand(300, 300, 4), 0.0),
        (images + places, 0.5),
    ):
        assert between_images(tokens) == pytest.approx(share, abs=0.06)


@pytest.mark.slow
def test_the_command_goes_on(repository_root: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for split, patients in (("train", range(10, 30)), ("test", range(8))):
        for kind, name in (
            ("NORMAL", "IM-{:04d}-0001.jpeg"),
            ("PNEUMONIA", "person{}_virus_1.jpeg"),
        ):
            folder = tmp_path / "child" / split / kind
            folder.mkdir(parents=True)
            for patient in patients:
                pixels = generator.integers(
                    0, 200 if kind == "NORMAL" else 255, (40, 40), dtype=np.uint8
                )
                Image.fromarray(pixels).save(folder / name.format(patient))
    small = {
        "image_size": 16,
        "patch_size": 8,
        **at("encoder_def", hidden_size=24, num_layers=1, num_heads=2),
        **at("network_def", head_dim=16, decoder_dim=24, decoder_heads=2, num_clusters=8),
        "batch_size": 8,
        "epochs": 1,
    }
    overrides = {
        **small,
        "train::lr_schedule::warmup_epochs": 0,
        "add_lesions::lesion_size": [4, 12],
    }
    arms = tmp_path / "arms.json"
    content = {"config_file": "bundles/afire/configs/train.json", "overrides": overrides}
    arms.write_text(json.dumps({**content, "arms": {"AFiRe": {}, "untrained": None}}))
    normals, output = tmp_path / "child" / "train" / "NORMAL", tmp_path / "results"
    words = [
        "--arms",
        arms,
        "--normals",
        normals,
        "--data",
        tmp_path / "child",
        "--output",
        output,
        "--seeds",
        "0",
    ]
    command = [sys.executable, "-m", "tests.evidence.real_components", *map(str, words)]
    for _ in range(2):
        result = subprocess.run(
            command, cwd=repository_root, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, result.stderr[-3000:]
    rows = pd.read_csv(output / "rows.csv")
    assert rows[["arm", "seed"]].to_numpy().tolist() == [["AFiRe", 0], ["untrained", 0]]
    assert rows[list(METRICS)].notna().to_numpy().all()
    log = (output / "pretraining" / "AFiRe-seed_0" / "log.txt").read_text()
    assert log.count("finish run workflow") <= 1
    assert log.count("input summary") == 1  # pre-trained once
