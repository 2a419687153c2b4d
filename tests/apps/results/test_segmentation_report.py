# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of a segmentation, against figures computed image by image."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from PIL import Image

from monai_afire.apps.results.segmentation_report import SegmentationReport

NAN = float("nan")
NAMES = ["lung", "heart"]


def random_boxes(number: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    masks = torch.zeros(number, len(NAMES), 24, 32, dtype=torch.bool)
    for mask in masks.flatten(0, 1):
        if rng.random() < 0.8:
            top, left = rng.integers(0, 12, 2)
            mask[top : top + rng.integers(3, 12), left : left + rng.integers(3, 16)] = True
    return masks


def run(
    folder: Path,
    pred: torch.Tensor,
    truth: torch.Tensor,
    size: int = 3,
    items: Any = None,
    **options: Any,
) -> dict[str, Any]:
    names = options.pop("names", NAMES)
    items = items or [{"image": f"/data/{index}.png"} for index in range(len(pred))]
    engine = Engine(lambda engine, batch: {"pred": batch["logits"], "label": batch["label"]})
    SegmentationReport(items, names, str(folder), **options).attach(engine)
    indices = torch.arange(len(pred)).split(size)
    images = torch.rand(len(pred), 1, *pred.shape[2:])
    batches = [
        {"image": images[i], "index": i, "logits": pred[i], "label": truth[i]} for i in indices
    ]
    if "shape" in items[0]:
        for batch in batches:
            batch["spatial_shape"] = torch.tensor([items[i]["shape"] for i in batch["index"]])
    engine.run(batches)
    return json.loads((folder / "metrics.json").read_text())


def logits(masks: torch.Tensor) -> torch.Tensor:
    return torch.where(masks, 2.0, -2.0)


def test_figures_equal_a_loop(tmp_path: Path) -> None:
    pred, truth = random_boxes(10, 0), random_boxes(10, 1)
    metrics = run(tmp_path, logits(pred), truth.to(torch.uint8))
    means = []
    for number, name in enumerate(NAMES):
        dices, present = [], []
        for image in range(10):
            both = int((pred[image, number] & truth[image, number]).sum())
            total = int(pred[image, number].sum() + truth[image, number].sum())
            dices.append(2 * both / total if total else 1.0)
            present.append(bool(truth[image, number].any()))
        figures = metrics["per_class"][name]
        assert figures["dice"] == pytest.approx(np.mean(dices), abs=1e-6)
        assert figures["dice_where_present"] == pytest.approx(
            np.mean(np.array(dices)[present]), abs=1e-6
        )
        assert (figures["num_images"], figures["num_present"]) == (10, sum(present))
        means.append(np.mean(dices))
    assert metrics["mean_dice"] == pytest.approx(np.mean(means), abs=1e-6)
    assert "mean_hd95_mm" not in metrics
    with (tmp_path / "evaluation.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == [f"/data/{index}.png" for index in range(10)]
    for name in NAMES:
        assert np.mean([float(row[f"dice_{name}"]) for row in rows]) == pytest.approx(
            metrics["per_class"][name]["dice"]
        )
        distances = [float(row[f"hd95_{name}"]) for row in rows if row[f"hd95_{name}"]]
        assert np.mean(distances) == pytest.approx(metrics["per_class"][name]["hd95"])
    with Image.open(tmp_path / "segmentation.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    assert (np.abs(pixels - (0, 229, 255)).max(-1) < 20).sum() > 100


def test_distances_by_hand(tmp_path: Path) -> None:
    truth = torch.zeros(2, 2, 24, 32, dtype=torch.bool)
    truth[:, :, 4:12, 6:18] = True
    pred = truth.clone()
    pred[:, 0] = truth[:, 0].roll(3, -1)
    items = [
        {
            "image": "a.png",
            "pixel_size": 0.5,
            "shape": [48, 128],
        },  # a column of the input is 4 of the file: 2 mm
        {"image": "b.png", "shape": [24, 32]},
    ]
    metrics = run(tmp_path, logits(pred), truth, items=items)
    assert metrics["mean_hd95"] == 1.5
    assert metrics["mean_hd95_mm"] == 3.0
    assert metrics["per_class"]["lung"]["hd95"] == 3.0
    assert metrics["per_class"]["lung"]["hd95_mm"] == pytest.approx(6.0)
    assert metrics["per_class"]["heart"] == {
        "dice": 1.0, "hd95": 0.0, "hd95_mm": 0.0, "dice_where_present": 1.0, "num_images": 2, "num_present": 2
    }  # fmt: skip


def test_empty_masks(tmp_path: Path) -> None:
    empty = torch.zeros(2, 1, 24, 32, dtype=torch.bool)
    truth = empty.clone()
    truth[1, :, 3:9, 3:9] = True
    metrics = run(tmp_path, logits(empty), truth, names=["lung"])
    diagonal = math.hypot(24, 32)
    assert metrics["per_class"]["lung"] == {
        "dice": 0.5, "hd95": diagonal, "dice_where_present": 0.0, "num_images": 2, "num_present": 1
    }  # fmt: skip


def test_unknown_masks_do_not_count(tmp_path: Path) -> None:
    pred, truth = random_boxes(5, 4), random_boxes(5, 5).float()
    pred[1] = truth[1] == 0
    truth[1, 0, 0, 0] = truth[3] = NAN
    metrics = run(tmp_path, logits(pred), truth)
    rest = [0, 2, 4]
    expected = run(tmp_path / "rest", logits(pred[rest]), truth[rest])
    assert metrics["per_class"]["lung"] == expected["per_class"]["lung"]
    assert metrics["per_class"]["heart"]["num_images"] == 4


def test_threshold_is_a_probability(tmp_path: Path) -> None:
    truth = random_boxes(3, 6)
    truth[:, :, :2, :2] = True
    low = torch.where(truth, -1.0, -4.0)  # probabilities 0.27 and 0.02
    assert run(tmp_path / "a", low, truth, threshold=0.25)["mean_dice"] == 1
    assert run(tmp_path / "b", low, truth)["mean_dice"] == 0
    with pytest.raises(ValueError, match="threshold"):
        SegmentationReport([], NAMES, str(tmp_path), threshold=0)


def test_refuses_what_cannot_be_judged(tmp_path: Path) -> None:
    masks = random_boxes(2, 7)
    bad = logits(masks)
    bad[1, 0, 3, 3] = NAN
    with pytest.raises(ValueError, match=r"/data/1\.png is NaN"):
        run(tmp_path, bad, masks)
    with pytest.raises(ValueError, match="1 class names"):
        run(tmp_path, logits(masks), masks, names=["lung"])
    with pytest.raises(ValueError, match="more than once"):
        SegmentationReport([], ["lung", "lung"], str(tmp_path))
    assert not (tmp_path / "metrics.json").exists()
