# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""FIRE's text files become pairs of a datalist; broken ones are refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monai_afire.apps.readers import write_datalist
from monai_afire.apps.readers.__main__ import main
from monai_afire.apps.readers.fire import FIREReader
from monai_afire.data import load_radiograph_datalist
from monai_afire.data.datalist.datalist_checks import DatalistError

POINTS = {
    "A01": "10 20 11.5 22\n100 200 101 202.25\n",
    "P37": "1.0e2  7 3 4 \r\n\r\n",
    "S71": "5 6 7 8",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder as it is published, with empty photographs."""
    for name in ("Images", "Ground Truth", "Masks"):
        (tmp_path / name).mkdir()
    for pair, text in POINTS.items():
        (tmp_path / "Ground Truth" / f"control_points_{pair}_1_2.txt").write_text(text, newline="")
        for end in (1, 2):
            (tmp_path / "Images" / f"{pair}_{end}.jpg").touch()
    (tmp_path / "Masks" / "mask.png").touch()
    return tmp_path


def build(root: Path, **arguments: Any) -> dict[str, Any]:
    options = {name: arguments.pop(name) for name in ("exclude",) if name in arguments}
    report = write_datalist(FIREReader(**options), root, root / "fire.json", **arguments)
    return json.loads(report.path.read_text())


def test_pairs_with_rows_before_columns(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fire", "--root", str(root), "--output", str(root / "lists" / "fire.json")]) == 0
    said = capsys.readouterr().out
    assert "3 of the 134 published pairs" in said
    content = json.loads((root / "lists" / "fire.json").read_text())
    first, second, third = content["test"]
    assert (first["image"], first["image_2"]) == ("../Images/A01_1.jpg", "../Images/A01_2.jpg")
    assert first["landmarks"] == [[20, 10], [200, 100]]
    assert first["landmarks_2"] == [[22, 11.5], [202.25, 101]]
    assert (second["landmarks"], second["landmarks_2"]) == ([[7, 100]], [[4, 3]])
    assert [content["labels"][str(item["label"])] for item in (first, second, third)] == [
        "changed anatomy",
        "small overlap",
        "large overlap",
    ]
    assert [item["group"] for item in (first, second, third)] == [
        content["labels"][str(item["label"])] for item in (first, second, third)
    ]
    assert content["modality"] == {"0": "OP"}
    loaded = load_radiograph_datalist(
        None, root / "lists" / "fire.json", "test", path_keys=("image", "image_2")
    )
    assert Path(loaded[0]["image_2"]) == root / "Images" / "A01_2.jpg"


def test_pairs_are_left_out_and_divided_as_asked(root: Path) -> None:
    assert [item["patient_id"] for item in build(root, exclude=("P37",))["test"]] == ["A01", "S71"]
    divided = build(root, split="random", test_fraction=0.5, val_fraction=0)
    assert sum(len(divided.get(name, ())) for name in ("training", "test")) == 3
    with pytest.raises(DatalistError, match="no pair is called B02"):
        build(root, exclude=("B02",))
    with pytest.raises(DatalistError, match="leaves no pair"):
        build(root, exclude=tuple(POINTS))


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("1 2 3 4\n5 6 7\n", 2, "'5 6 7'"),
        ("1 2 3 4\n\n5 6 7 8 9\n", 3, "'5 6 7 8 9'"),
        ("1,2,3,4\n", 1, "'1,2,3,4'"),
        ("1 2 3 nan\n", 1, "nan"),
        ("1 -2 3 4\n", 1, "-2"),
        ("x1 y1 x2 y2\n", 1, "x1 y1 x2 y2"),
    ],
)
def test_a_broken_line_is_named(root: Path, text: str, line: int, found: str) -> None:
    path = root / "Ground Truth" / "control_points_S71_1_2.txt"
    path.write_text(text)
    with pytest.raises(DatalistError) as caught:
        build(root)
    assert f"{path}: line {line} is " in str(caught.value)
    assert found in str(caught.value)


def test_what_is_missing_is_named(root: Path, tmp_path: Path) -> None:
    truth = root / "Ground Truth"
    (root / "Images" / "S71_2.jpg").unlink()
    with pytest.raises(DatalistError, match="1 of 3 listed images are not there: S71_2"):
        build(root)
    assert len(build(root, allow_missing=True)["test"]) == 2
    (truth / "control_points_S71_1_2.txt").write_text(" \n")
    with pytest.raises(DatalistError, match=r"control_points_S71_1_2\.txt: is empty"):
        build(root)
    (truth / "control_points_B01_1_2.txt").write_text("1 2 3 4")
    with pytest.raises(DatalistError, match="is not named like"):
        build(root)
    with pytest.raises(DatalistError, match="no files such as control_points"):
        build(root, labels=root / "Images")
    (truth / "control_points_B01_1_2.txt").unlink()
    (truth / "copy").mkdir()
    (truth / "copy" / "control_points_A01_1_2.txt").write_text("1 2 3 4")
    with pytest.raises(DatalistError, match="are of one pair"):
        build(root)
