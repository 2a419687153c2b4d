# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of landmark detection, against errors computed one by one."""

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

from monai_afire.apps.results.landmark_report import LandmarkReport

NAN = float("nan")
NAMES = ["apex", "carina", "dome"]
SIZE = (40, 50)


def heatmaps(points: torch.Tensor, size: tuple[int, int] = SIZE) -> torch.Tensor:
    """A single pixel of 1 at each whole-numbered position, nothing for NaN."""
    maps = torch.zeros(*points.shape[:2], *size)
    for (b, p), _ in np.ndenumerate(points[..., 0].numpy()):
        if not points[b, p].isnan().any():
            maps[b, p][tuple(points[b, p].long().tolist())] = 1
    return maps


def random_points(number: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(3, 37, (number, len(NAMES), 2))).float()


def run(
    folder: Path,
    maps: torch.Tensor,
    truth: torch.Tensor,
    size: int = 3,
    items: Any = None,
    **options: Any,
) -> dict[str, Any]:
    items = items or [{"image": f"/data/{index}.png"} for index in range(len(maps))]
    engine = Engine(lambda engine, batch: {"pred": batch["maps"], "label": None})
    LandmarkReport(items, options.pop("names", NAMES), str(folder), **options).attach(engine)
    images = torch.rand(len(maps), 1, *SIZE)
    batches: list[dict[str, Any]] = [
        {"image": images[i], "index": i, "maps": maps[i], "landmarks": truth[i]}
        for i in torch.arange(len(maps)).split(size)
    ]
    if "shape" in items[0]:
        for batch in batches:
            batch["spatial_shape"] = torch.tensor([items[i]["shape"] for i in batch["index"]])
    engine.run(batches)
    return json.loads((folder / "metrics.json").read_text())


def test_figures_equal_a_loop(tmp_path: Path) -> None:
    truth = random_points(9, 0)
    found = (truth + random_points(9, 1) % 4 - 1).clamp(0, 39)
    truth[2, 1] = truth[4] = truth[5, 0, 0] = NAN
    metrics = run(tmp_path, heatmaps(found), truth, radii=(0.021, 0.049))
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for image in range(9):
        for number, name in enumerate(NAMES):
            row, column = (found[image, number] - truth[image, number]).tolist()
            if not math.isnan(row + column):
                errors[name].append((math.hypot(row, column), math.hypot(row / 40, column / 50)))
    for name, figures in [*metrics["per_landmark"].items(), (None, metrics)]:
        values = np.array(
            errors[name] if name else [pair for pairs in errors.values() for pair in pairs]
        )
        assert figures["num_known"] == len(values)
        assert figures["num_not_found"] == 0
        assert figures["mean_radial_error_pixels"] == pytest.approx(values[:, 0].mean(), rel=1e-5)
        assert figures["mean_radial_error"] == pytest.approx(values[:, 1].mean(), rel=1e-5)
        for radius in (0.021, 0.049):
            assert figures[f"success_rate_{100 * radius:g}%"] == pytest.approx(
                (values[:, 1] <= radius).mean()
            )
        assert "mean_radial_error_mm" not in figures
    with (tmp_path / "landmarks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert rows[4]["carina_error"] == ""
    assert (float(rows[3]["dome_row"]), float(rows[3]["dome_column"])) == tuple(
        found[3, 2].tolist()
    )
    with Image.open(tmp_path / "landmarks.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    for color in ((0, 229, 255), (255, 140, 0)):
        assert (np.abs(pixels - color).max(-1) < 20).any()


def test_millimeters_where_known(tmp_path: Path) -> None:
    truth = torch.full((2, 3, 2), 20.0)
    found = truth + torch.tensor([3.0, 4.0])
    items = [
        {"image": "a.png", "pixel_size": 0.5, "shape": [80, 400]},  # of the input: 1 mm by 4 mm
        {"image": "b.png", "shape": [40, 50]},
    ]
    metrics = run(tmp_path, heatmaps(found), truth, items=items)
    assert metrics["mean_radial_error_pixels"] == 5
    assert metrics["mean_radial_error_mm"] == pytest.approx(math.hypot(3, 16))
    assert metrics["mean_radial_error"] == pytest.approx(math.hypot(3 / 40, 4 / 50))


def test_coarser_maps_point_into_the_image(tmp_path: Path) -> None:
    coarse = torch.tensor([[[4.0, 3.0], [0.0, 0.0], [7.0, 9.0]]])
    truth = coarse * 5 + 2  # the centers of the 5 by 5 pixels that one of the map covers
    assert run(tmp_path, heatmaps(coarse, (8, 10)), truth)[
        "mean_radial_error_pixels"
    ] == pytest.approx(0, abs=1e-5)


def test_landmarks_that_are_not_found_are_failures(tmp_path: Path) -> None:
    truth = random_points(2, 5)
    found = truth.clone()
    found[0, 0] = NAN  # a flat map
    metrics = run(tmp_path, heatmaps(found), truth)
    assert metrics["num_not_found"] == 1
    assert metrics["mean_radial_error_pixels"] == 0
    assert metrics["success_rate_4%"] == pytest.approx(5 / 6)
    assert metrics["per_landmark"]["apex"]["success_rate_4%"] == 0.5


def test_one_image_and_nothing_known(tmp_path: Path) -> None:
    metrics = run(tmp_path, heatmaps(random_points(1, 6)), torch.full((1, 3, 2), NAN))
    assert metrics["num_known"] == 0
    assert metrics["mean_radial_error"] is metrics["success_rate_1%"] is None
    assert not (tmp_path / "landmarks.png").exists()


def test_refuses_what_cannot_be_judged(tmp_path: Path) -> None:
    truth = random_points(2, 7)
    maps = heatmaps(truth)
    maps[1, 0, 3, 3] = NAN
    with pytest.raises(ValueError, match=r"/data/1\.png is NaN"):
        run(tmp_path, maps, truth)
    with pytest.raises(ValueError, match="1 class names"):
        run(tmp_path, heatmaps(truth), truth, names=["apex"])
    with pytest.raises(ValueError, match="more than once"):
        LandmarkReport([], ["apex", "apex"], str(tmp_path))
