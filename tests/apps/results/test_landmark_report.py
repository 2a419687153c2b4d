# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report of landmark detection, against errors computed one by one."""

from __future__ import annotations

import json
import math
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from apps.results.test_result_tables import read_csv
from ignite.engine import Engine
from PIL import Image

from monai_afire.apps.results import LandmarkReport

NAN = float("nan")
NAMES = ["apex", "carina", "dome"]
SIZE = (40, 50)


def heatmaps(points: torch.Tensor, size: tuple[int, int] = SIZE) -> torch.Tensor:
    """A single pixel of 1 at each whole-numbered position, nothing for NaN."""
    maps = torch.zeros(*points.shape[:2], *size)
    for b, p in np.ndindex(*points.shape[:2]):
        if not points[b, p].isnan().any():
            maps[b, p][tuple(points[b, p].long().tolist())] = 1
    return maps


def random_points(number: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(3, 37, (number, len(NAMES), 2))).float()


def run(
    folder: Path, maps: torch.Tensor, truth: torch.Tensor, names: Any = NAMES, **options: Any
) -> dict[str, Any]:
    items = options.pop("items", [{"image": f"/data/{index}.png"} for index in range(len(maps))])
    engine = Engine(lambda engine, batch: {"pred": batch["maps"], "label": None})
    LandmarkReport(items, names, str(folder), **options).attach(engine)
    whole = {"index": torch.arange(len(maps)), "image": torch.rand(len(maps), 1, *SIZE)}
    whole |= {"maps": maps, "landmarks": truth}
    whole["spatial_shape"] = torch.tensor([item.get("shape", SIZE) for item in items])
    parts = whole["index"].split(3)
    engine.run([{key: values[part] for key, values in whole.items()} for part in parts])
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
    assert list(metrics["per_landmark"]) == NAMES
    for name, figures in [*metrics.pop("per_landmark").items(), ("", metrics)]:
        values = np.array(errors[name] if name else [*chain(*errors.values())])
        assert figures.pop("num_images", 9) == 9
        assert figures == pytest.approx(
            {
                "mean_radial_error_pixels": values[:, 0].mean(),
                "mean_radial_error": values[:, 1].mean(),
                "success_rate_2.1%": (values[:, 1] <= 0.021).mean(),
                "success_rate_4.9%": (values[:, 1] <= 0.049).mean(),
                "num_known": len(values),
                "num_not_found": 0,
            },
            rel=1e-5,
        )
    rows = read_csv(tmp_path / "landmarks.csv")
    assert len(rows) == 9
    assert rows[4]["carina_error"] == ""
    assert [float(rows[3][f"dome_{side}"]) for side in ("row", "column")] == found[3, 2].tolist()
    with Image.open(tmp_path / "landmarks.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    for color in ((0, 229, 255), (255, 140, 0)):
        assert (np.abs(pixels - color).max(-1) < 20).any()


def test_millimeters_where_known(tmp_path: Path) -> None:
    truth = torch.full((2, 3, 2), 20.0)
    found = truth + torch.tensor([3.0, 4.0])
    # of the first one's input, 1 mm by 4 mm
    items = [{"image": "a.png", "pixel_size": 0.5, "shape": [80, 400]}, {"image": "b.png"}]
    metrics = run(tmp_path, heatmaps(found), truth, items=items)
    assert metrics["mean_radial_error_pixels"] == 5
    assert metrics["mean_radial_error_mm"] == pytest.approx(math.hypot(3, 16))
    assert metrics["mean_radial_error"] == pytest.approx(math.hypot(3 / 40, 4 / 50))


def test_coarser_maps_point_into_the_image(tmp_path: Path) -> None:
    coarse = torch.tensor([[[4.0, 3.0], [0.0, 0.0], [7.0, 9.0]]])
    truth = coarse * 5 + 2  # the centers of the 5 by 5 pixels that one of the map covers
    metrics = run(tmp_path, heatmaps(coarse, (8, 10)), truth)
    assert metrics["mean_radial_error_pixels"] == pytest.approx(0, abs=1e-5)


def test_landmarks_that_are_not_found_are_failures(tmp_path: Path) -> None:
    truth = random_points(2, 5)
    found = truth.clone()
    found[0, 0] = NAN  # a flat map
    metrics = run(tmp_path, heatmaps(found), truth)
    assert metrics["num_not_found"] == 1
    assert metrics["mean_radial_error_pixels"] == 0
    assert metrics["success_rate_4%"] == pytest.approx(5 / 6)
    assert metrics["per_landmark"]["apex"]["success_rate_4%"] == 0.5


@pytest.mark.parametrize(
    ("names", "value", "named"),
    [(NAMES, NAN, "/data/1.png"), (["apex"], 0.0, "class names"), (["apex"] * 3, 0.0, "apex")],
)
def test_refuses_what_cannot_be_judged(
    tmp_path: Path, names: list[str], value: float, named: str
) -> None:
    truth = random_points(2, 7)
    maps = heatmaps(truth)
    maps[1, 0, 3, 3] = value
    with pytest.raises(ValueError, match=named):
        run(tmp_path, maps, truth, names)
