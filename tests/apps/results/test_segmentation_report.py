# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of a segmentation, against figures computed image by image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from apps.results.test_result_tables import read_csv
from ignite.engine import Engine
from PIL import Image

from monai_afire.apps.results import SegmentationReport

NAN = float("nan")
NAMES = ["lung", "heart"]
SIZE = (24, 32)


def random_boxes(number: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    masks = torch.zeros(number, len(NAMES), *SIZE, dtype=torch.bool)
    for mask in masks.flatten(0, 1):
        if rng.random() < 0.8:
            top, left = rng.integers(0, 12, 2)
            mask[top : top + rng.integers(3, 12), left : left + rng.integers(3, 16)] = True
    return masks


def logits(masks: torch.Tensor) -> torch.Tensor:
    return torch.where(masks, 2.0, -2.0)


def run(
    folder: Path, pred: torch.Tensor, truth: torch.Tensor, names: Any = NAMES, **options: Any
) -> dict[str, Any]:
    items = options.pop("items", [{"image": f"/data/{index}.png"} for index in range(len(pred))])
    engine = Engine(lambda engine, batch: {"pred": batch["logits"], "label": batch["label"]})
    SegmentationReport(items, names, str(folder), **options).attach(engine)
    whole = {"index": torch.arange(len(pred)), "image": torch.rand(len(pred), 1, *SIZE)}
    whole |= {"logits": pred, "label": truth}
    whole["spatial_shape"] = torch.tensor([item.get("shape", SIZE) for item in items])
    parts = whole["index"].split(3)
    engine.run([{key: values[part] for key, values in whole.items()} for part in parts])
    return json.loads((folder / "metrics.json").read_text())


def test_figures_equal_a_loop(tmp_path: Path) -> None:
    pred, truth = random_boxes(10, 0), random_boxes(10, 1)
    metrics = run(tmp_path, logits(pred), truth.to(torch.uint8))
    rows = read_csv(tmp_path / "evaluation.csv")
    assert [row["image"] for row in rows] == [f"/data/{index}.png" for index in range(10)]
    for number, name in enumerate(NAMES):
        dices, present = [], []
        for image in range(10):
            both = int((pred[image, number] & truth[image, number]).sum())
            total = int(pred[image, number].sum() + truth[image, number].sum())
            dices.append(2 * both / total if total else 1.0)
            present.append(bool(truth[image, number].any()))
        assert [float(row[f"dice_{name}"]) for row in rows] == pytest.approx(dices)
        distances = [float(row[f"hd95_{name}"]) for row in rows if row[f"hd95_{name}"]]
        assert metrics["per_class"][name] == pytest.approx(
            {
                "dice": np.mean(dices),
                "hd95": np.mean(distances),
                "dice_where_present": np.mean(np.array(dices)[present]),
                "num_images": 10,
                "num_present": sum(present),
            }
        )
    means = [metrics["per_class"][name]["dice"] for name in NAMES]
    assert metrics["mean_dice"] == pytest.approx(np.mean(means))
    assert "mean_hd95_mm" not in metrics
    with Image.open(tmp_path / "segmentation.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    assert (np.abs(pixels - (0, 229, 255)).max(-1) < 20).sum() > 100


def test_distances_by_hand(tmp_path: Path) -> None:
    truth = torch.zeros(2, 2, *SIZE, dtype=torch.bool)
    truth[:, :, 4:12, 6:18] = True
    pred = truth.clone()
    pred[:, 0] = truth[:, 0].roll(3, -1)
    # a column of the input is 4 of the first file: 2 mm
    items = [{"image": "a.png", "pixel_size": 0.5, "shape": [48, 128]}, {"image": "b.png"}]
    metrics = run(tmp_path, logits(pred), truth, items=items)
    assert (metrics["mean_hd95"], metrics["mean_hd95_mm"]) == (1.5, 3.0)
    assert metrics["per_class"]["lung"]["hd95"] == 3.0
    assert metrics["per_class"]["lung"]["hd95_mm"] == pytest.approx(6.0)
    assert metrics["per_class"]["heart"] == {
        "dice": 1.0, "hd95": 0.0, "hd95_mm": 0.0, "dice_where_present": 1.0, "num_images": 2, "num_present": 2
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


@pytest.mark.parametrize(
    ("names", "options", "value", "named"),
    [
        (NAMES, {}, NAN, "/data/1.png"),
        (["lung"], {}, 0.0, "class names"),
        (["lung", "lung"], {}, 0.0, "lung"),
        (NAMES, {"threshold": 0}, 0.0, "threshold"),
    ],
)
def test_refuses_what_cannot_be_judged(
    tmp_path: Path, names: list[str], options: dict[str, Any], value: float, named: str
) -> None:
    pred, masks = logits(random_boxes(2, 7)), random_boxes(2, 7)
    pred[1, 0, 3, 3] = value
    with pytest.raises(ValueError, match=named):
        run(tmp_path, pred, masks, names, **options)
    assert not (tmp_path / "metrics.json").exists()
