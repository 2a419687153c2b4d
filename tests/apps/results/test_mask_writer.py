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
from apps.results.test_result_tables import read_csv
from html_pages import Elements
from ignite.engine import Engine
from PIL import Image

from monai_afire.apps.results.mask_writer import LandmarkWriter, SegmentationWriter

NAN = float("nan")
NAMES = ["left lung", "heart"]


def batches(
    pred: torch.Tensor, shape: tuple[int, int], size: int = 2, **extra: Any
) -> list[dict[str, Any]]:
    number = len(pred)
    whole: dict[str, Any] = {
        "pred": pred,
        "index": torch.arange(number),
        "image": torch.rand(number, 1, *pred.shape[2:]),
        "spatial_shape": torch.tensor([shape] * number),
        "rejected": [""] * number,
        **extra,
    }
    return [
        {key: value[start : start + size] for key, value in whole.items()}
        for start in range(0, number, size)
    ]


def run(writer: SegmentationWriter | LandmarkWriter, data: list[dict[str, Any]]) -> None:
    engine = Engine(lambda engine, batch: {"pred": batch["pred"]})
    writer.attach(engine)
    engine.run(data)


def items_of(folder: Path, *names: str) -> list[dict[str, str]]:
    return [{"image": str(folder / name)} for name in names]


def half(top: bool) -> torch.Tensor:
    """Logits of one class that fills the upper or the lower half of 8 by 8 pixels."""
    inside = (torch.arange(8) < 4) == top
    return torch.where(inside[:, None], 5.0, -5.0).expand(8, 8)


def test_masks_have_the_pixels_of_the_file(tmp_path: Path) -> None:
    items = items_of(tmp_path / "in", "a.png", "day 1/b.dcm", "c.png")
    pred = torch.stack([torch.stack([half(True), half(False)])] * 3)
    pictures = torch.randint(0, 255, (3, 1, 64, 64), dtype=torch.uint8)
    run(
        SegmentationWriter(items, NAMES, str(tmp_path / "out")),
        batches(pred, (60, 40), picture=pictures),
    )
    for name in ("a", "day 1/b.dcm", "c"):
        for class_name, rows in (("left lung", slice(0, 30)), ("heart", slice(30, 60))):
            with Image.open(tmp_path / "out/masks" / class_name / f"{name}.png") as mask:
                expected = np.zeros((60, 40), dtype=np.uint8)
                expected[rows] = 255
                np.testing.assert_array_equal(np.asarray(mask), expected)
        with Image.open(tmp_path / "out/overlays" / f"{name}.png") as overlay:
            assert overlay.size == (43, 64)
            pixels = np.asarray(overlay).astype(int)
        assert (np.ptp(pixels, axis=-1) > 60)[30:35].mean() > 0.3  # an outline in the middle
        assert (pixels[52:] == 255).all(-1).any()  # the words that it is not for clinical use
    rows = read_csv(tmp_path / "out/segmentation.csv")
    assert [Path(row["image"]).name for row in rows] == ["a.png", "b.dcm", "c.png"]
    assert {row["area_fraction_left_lung"] for row in rows} == {"0.5"}
    assert read_csv(tmp_path / "out/rejected.csv") == []


def test_probabilities_are_interpolated_before_the_threshold(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pred = torch.randn(1, 1, 6, 5)
    writer = SegmentationWriter(
        items_of(tmp_path, "a.png"), ["x"], str(tmp_path / "out"), threshold=0.4, overlays=False
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
    with Image.open(tmp_path / "out/masks/x/a.png") as mask:
        np.testing.assert_array_equal(np.asarray(mask) == 255, expected)
    assert not (tmp_path / "out/overlays").exists()
    assert 0 < expected.mean() < 1


def test_empty_and_full_masks(tmp_path: Path) -> None:
    pred = torch.stack([torch.full((8, 8), -9.0), torch.full((8, 8), 9.0)])[None]
    run(
        SegmentationWriter(items_of(tmp_path, "a.png"), NAMES, str(tmp_path / "out")),
        batches(pred, (5, 9)),
    )
    [row] = read_csv(tmp_path / "out/segmentation.csv")
    assert (row["area_fraction_left_lung"], row["area_fraction_heart"]) == ("0", "1")
    for name, value in zip(NAMES, (0, 255), strict=True):
        with Image.open(tmp_path / f"out/masks/{name}/a.png") as mask:
            assert mask.size == (9, 5)
            assert np.unique(np.asarray(mask)).tolist() == [value]


def test_cardiothoracic_ratio(tmp_path: Path) -> None:
    """Heart of 4 columns between lungs from column 1 to 8; a speck far away is no part of it."""
    inside = torch.zeros(2, 3, 10, 10, dtype=torch.bool)
    inside[0, 0, 2:8, 1:4] = inside[0, 1, 4:8, 3:7] = inside[0, 2, 2:8, 6:9] = True
    inside[0, 1, 0, 0] = True
    inside[1, 0, 2:8, 1:4] = True
    pred = torch.where(inside, 5.0, -5.0)
    names = ["right lung", "heart", "lung_left"]
    items = items_of(tmp_path / "in", "a.png", "b.png")
    run(SegmentationWriter(items, names, str(tmp_path / "out")), batches(pred, (30, 20)))
    rows = read_csv(tmp_path / "out/segmentation.csv")
    assert [row["cardiothoracic_ratio"] for row in rows] == ["0.5", ""]


@pytest.mark.parametrize(
    ("names", "options", "named"),
    [
        (["heart", "a/b"], {}, "a/b"),
        (["heart", ".."], {}, "class names"),
        (["heart", ""], {}, "class names"),
        (["heart", "heart"], {}, "heart"),
        (NAMES, {"threshold": 1.0}, "threshold"),
        (["heart"], {}, "class names"),
    ],
)
def test_refused_settings(tmp_path: Path, names: list, options: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        run(
            SegmentationWriter(items_of(tmp_path, "a"), names, str(tmp_path), **options),
            batches(torch.zeros(1, 2, 8, 8), (9, 9)),
        )


def test_page_of_the_overlays(tmp_path: Path) -> None:
    items = items_of(tmp_path / "in", "a.png", "day #1/b.png")
    pred = torch.stack([torch.stack([half(True), half(False)])] * 2)
    run(SegmentationWriter(items, NAMES, str(tmp_path / "out")), batches(pred, (60, 40)))
    text = (tmp_path / "out/segmentation.html").read_text(encoding="utf-8")
    pictures = [unquote(each["src"] or "") for each in Elements(text).named("img")]
    assert pictures == ["overlays/a.png", "overlays/day #1/b.png"]
    assert all((tmp_path / "out" / picture).is_file() for picture in pictures)
    assert text.count("left lung 50.0 %") == 2


def test_landmarks_in_pixels_of_the_file(tmp_path: Path) -> None:
    maps = torch.zeros(2, 2, 8, 8)
    maps[0, 0, 2, 5], maps[0, 1, 0, 0] = 0.75, 2.0
    maps[1, 0, 7, 7] = 1.0  # the other is flat
    items = items_of(tmp_path / "in", "a.png", "b.png")
    images = torch.zeros(2, 1, 8, 8)
    run(
        LandmarkWriter(items, ["apex", "carina"], str(tmp_path / "out")),
        batches(maps, (80, 16), image=images),
    )
    rows = read_csv(tmp_path / "out/landmarks.csv")
    assert [(Path(row["image"]).name, row["landmark"]) for row in rows] == [
        ("a.png", "apex"), ("a.png", "carina"), ("b.png", "apex"), ("b.png", "carina")
    ]  # fmt: skip
    # a pixel of the map covers 10 rows and 2 columns of the file: row 2 is the rows 20 to 29
    places = [(row["row"], row["column"], row["peak"]) for row in rows]
    assert places == [
        ("24.50", "10.50", "0.75"),
        ("4.50", "0.50", "2"),
        ("74.50", "14.50", "1"),
        ("", "", "0"),
    ]
    with Image.open(tmp_path / "out/overlays/a.png") as overlay:
        assert overlay.size == (2, 8)


def test_landmarks_are_drawn_where_they_are(tmp_path: Path) -> None:
    maps = torch.zeros(1, 1, 16, 16)
    maps[0, 0, 4, 12] = 1.0
    picture = torch.zeros(1, 1, 320, 320, dtype=torch.uint8)
    writer = LandmarkWriter(items_of(tmp_path, "a.png"), ["apex"], str(tmp_path / "out"))
    run(writer, batches(maps, (100, 200), picture=picture))
    with Image.open(tmp_path / "out/overlays/a.png") as overlay:
        pixels = np.asarray(overlay).astype(int)
    assert pixels.shape == (160, 320, 3)
    rows, columns = np.nonzero(np.ptp(pixels, axis=-1) > 60)
    assert (rows.mean(), columns.mean()) == pytest.approx((45, 250), abs=1)
