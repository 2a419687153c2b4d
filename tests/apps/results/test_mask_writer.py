# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Masks and landmarks on disk, in the pixels of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from apps.results.test_result_tables import read_csv, run
from html_pages import Elements
from PIL import Image

from monai_afire.apps.results import LandmarkWriter, SegmentationWriter

NAMES = ["left lung", "heart"]


def batches(pred: torch.Tensor, shape: tuple[int, int], **extra: Any) -> list[dict[str, Any]]:
    whole: dict[str, Any] = {
        "pred": pred,
        "index": torch.arange(len(pred)),
        "image": torch.rand(len(pred), 1, *pred.shape[2:]),
        "spatial_shape": torch.tensor([shape] * len(pred)),
        **extra,
    }
    starts = range(0, len(pred), 2)
    return [{key: value[i : i + 2] for key, value in whole.items()} for i in starts]


def items_of(folder: Path, *names: str) -> list[dict[str, str]]:
    return [{"image": str(folder / name)} for name in names]


def pixels_of(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


def halves() -> torch.Tensor:
    """Logits of two classes, in the upper and in the lower half of 8 by 8 pixels."""
    upper = torch.where(torch.arange(8)[:, None] < 4, 5.0, -5.0).expand(8, 8)
    return torch.stack([upper, -upper])


def test_masks_have_the_pixels_of_the_file(tmp_path: Path) -> None:
    items = items_of(tmp_path / "in", "a.png", "day #1/b.dcm", "c.png")
    pictures = torch.randint(0, 255, (3, 1, 64, 64), dtype=torch.uint8)
    data = batches(torch.stack([halves()] * 3), (60, 40), picture=pictures)
    run(SegmentationWriter(items, NAMES, str(tmp_path / "out")), data)
    overlays = [f"overlays/{name}.png" for name in ("a", "day #1/b.dcm", "c")]
    for overlay in overlays:
        for class_name, rows in (("left lung", slice(0, 30)), ("heart", slice(30, 60))):
            expected = np.zeros((60, 40), dtype=np.uint8)
            expected[rows] = 255
            mask = tmp_path / "out" / overlay.replace("overlays", f"masks/{class_name}")
            np.testing.assert_array_equal(pixels_of(mask), expected)
        pixels = pixels_of(tmp_path / "out" / overlay).astype(int)
        assert pixels.shape == (64, 43, 3)
        assert (np.ptp(pixels, axis=-1) > 60)[30:35].mean() > 0.3  # an outline in the middle
        assert (pixels[52:] == 255).all(-1).any()  # the words that it is not for clinical use
    rows = read_csv(tmp_path / "out/segmentation.csv")
    assert [row["image"] for row in rows] == [item["image"] for item in items]
    assert {row["area_fraction_left_lung"] for row in rows} == {"0.5"}
    text = (tmp_path / "out/segmentation.html").read_text(encoding="utf-8")
    assert [unquote(each["src"] or "") for each in Elements(text).named("img")] == overlays


def test_probabilities_are_interpolated_before_the_threshold(tmp_path: Path) -> None:
    pred = torch.randn(1, 1, 6, 5, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"threshold": 0.4, "overlays": False}
    writer = SegmentationWriter(
        items_of(tmp_path, "a.png"), ["x"], str(tmp_path / "out"), **options
    )
    run(writer, batches(pred, (17, 23)))
    probability = pred[0, 0].sigmoid().numpy()
    expected = np.zeros((17, 23), dtype=bool)
    for row, column in np.ndindex(17, 23):
        y = min(max((row + 0.5) * 6 / 17 - 0.5, 0), 5)
        x = min(max((column + 0.5) * 5 / 23 - 0.5, 0), 4)
        top, left = min(int(y), 4), min(int(x), 3)
        a, b = y - top, x - left
        cell = probability[top : top + 2, left : left + 2]
        expected[row, column] = np.array([1 - a, a]) @ cell @ np.array([1 - b, b]) >= 0.4
    np.testing.assert_array_equal(pixels_of(tmp_path / "out/masks/x/a.png") == 255, expected)
    assert 0 < expected.mean() < 1
    assert not (tmp_path / "out/overlays").exists()


def test_cardiothoracic_ratio(tmp_path: Path) -> None:
    """Heart of 4 columns between lungs from column 1 to 8; a speck far away is no part of it."""
    inside = torch.zeros(2, 3, 10, 10, dtype=torch.bool)
    inside[0, 0, 2:8, 1:4] = inside[0, 1, 4:8, 3:7] = inside[0, 2, 2:8, 6:9] = True
    inside[0, 1, 0, 0] = inside[1, 0, 2, 1] = True
    names, items = ["right lung", "heart", "lung_left"], items_of(tmp_path / "in", "a.png", "b.png")
    data = batches(torch.where(inside, 5.0, -5.0), (30, 20))
    run(SegmentationWriter(items, names, str(tmp_path / "out")), data)
    rows = read_csv(tmp_path / "out/segmentation.csv")
    assert [row["cardiothoracic_ratio"] for row in rows] == ["0.5", ""]


@pytest.mark.parametrize(
    ("names", "options", "named"),
    [
        (["heart", "a/b"], {}, "a/b"),
        (["heart", ".."], {}, "class names"),
        (["heart"], {}, "class names"),
    ],
)
def test_refused_settings(tmp_path: Path, names: list, options: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        run(
            SegmentationWriter(items_of(tmp_path, "a"), names, str(tmp_path), **options),
            batches(torch.zeros(1, 2, 8, 8), (9, 9)),
        )


def test_landmarks_in_pixels_of_the_file(tmp_path: Path) -> None:
    maps = torch.zeros(2, 2, 8, 8)
    maps[0, 0, 2, 5], maps[0, 1, 0, 0] = 0.75, 2.0
    maps[1, 0, 7, 7] = 1.0  # the other is flat
    items = items_of(tmp_path / "in", "a.png", "b.png")
    writer = LandmarkWriter(items, ["apex", "carina"], str(tmp_path / "out"))
    run(writer, batches(maps, (80, 16)))
    rows = read_csv(tmp_path / "out/landmarks.csv")
    places = [(Path(row["image"]).name, *list(row.values())[1:]) for row in rows]
    # a pixel of the map covers 10 rows and 2 columns of the file: row 2 is the rows 20 to 29
    assert places == [
        ("a.png", "apex", "24.50", "10.50", "0.75"),
        ("a.png", "carina", "4.50", "0.50", "2"),
        ("b.png", "apex", "74.50", "14.50", "1"),
        ("b.png", "carina", "", "", "0"),
    ]
    assert pixels_of(tmp_path / "out/overlays/a.png").shape == (8, 2, 3)
