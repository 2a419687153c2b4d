# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of the reader of NIH ChestX-ray14."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from monai_afire.apps.readers import write_datalist
from monai_afire.apps.readers.nih import NIH_FINDINGS, NIHReader
from monai_afire.data.datalist.loading import DatalistError

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
ROWS = [
    "00000001_000.png,Cardiomegaly,0,1,57,M,PA,2682,2749,0.143,0.143",
    "00000001_001.png,Cardiomegaly|Emphysema,1,1,58,M,AP,2894,2729,0.143,0.143",
    "00000002_000.png,No Finding,0,2,80,M,PA,2500,2048,0.171,0.171",
    "00000003_000.png,Hernia|Infiltration,0,3,74,F,PA,2500,2048,0.168,0.168",
    "00000004_000.png,No Finding,0,4,82,M,AP,2500,2048,0.168,0.168",
]
BOXES = [
    "Image Index,Finding Label,Bbox [x,y,w,h],,,",
    "00000003_000.png,Infiltrate,225.084745762712,547.019216763771,86.7796610169491,79.1864406779661",
    "00000003_000.png,Hernia,0,0,1024,10.5",
]


def make_set(
    root: Path, rows: list[str] = ROWS, boxes: list[str] | None = BOXES, header: str = HEADER
) -> Path:
    (root / "Data_Entry_2017_v2020.csv").write_text("\n".join([header, *rows]) + "\n")
    names = [row.split(",")[0] for row in rows]
    (root / "train_val_list.txt").write_text("\n".join(name for name in names if name < "00000003"))
    (root / "test_list.txt").write_text(
        "\n".join(name for name in names if name >= "00000003") + "\n"
    )
    if boxes:
        (root / "BBox_List_2017.csv").write_text("\n".join(boxes) + "\n")
    for number, name in enumerate(names):
        folder = root / f"images_{number % 2 + 1:03d}" / "images"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return root


def build(root: Path, **arguments: Any) -> dict[str, Any]:
    report = write_datalist(NIHReader(), root, root / "list.json", **arguments)
    return json.loads(report.path.read_text())


def refused(root: Path, **arguments: Any) -> str:
    with pytest.raises(DatalistError) as caught:
        build(root, **arguments)
    assert not (root / "list.json").exists()
    return str(caught.value)


def test_excerpt(tmp_path: Path) -> None:
    content = build(make_set(tmp_path), val_fraction=0)
    assert content["finding_names"] == list(NIH_FINDINGS)
    assert content["box_mode"] == "xywh"
    assert content["box_image_size"] == [1024, 1024]
    assert [content["numTraining"], content["numTest"]] == [3, 2]
    assert "validation" not in content
    second = content["training"][1]
    label = [int(name in ("Cardiomegaly", "Emphysema")) for name in NIH_FINDINGS]
    image = "images_002/images/00000001_001.png"
    groups = {"view": "AP", "sex": "M", "age": "58"}
    assert second == {
        "image": image,
        "label": label,
        "abnormal": 1,
        "patient_id": "00000001",
        **groups,
    }
    assert content["training"][2]["abnormal"] == 0
    assert not any(content["training"][2]["label"])
    with_boxes, without = content["test"]
    assert with_boxes["boxes"] == [
        [225.084745762712, 547.019216763771, 86.7796610169491, 79.1864406779661],
        [0, 0, 1024, 10.5],
    ]
    assert with_boxes["box_findings"] == ["Infiltration", "Hernia"]
    assert "boxes" not in without


def test_first_edition_and_absent_boxes(tmp_path: Path) -> None:
    """The table of 2017 has a comma at the end of each line; boxes are not needed."""
    make_set(tmp_path, [row + "," for row in ROWS], boxes=None, header=HEADER + ",")
    (tmp_path / "Data_Entry_2017_v2020.csv").rename(tmp_path / "Data_Entry_2017.csv")
    report = write_datalist(NIHReader(), tmp_path, tmp_path / "list.json")
    assert "no boxes" in str(report)
    assert sum(report.num_images.values()) == 5
    assert report.label_counts["Cardiomegaly"] == 2


def test_converted_images_are_found_by_name(tmp_path: Path) -> None:
    make_set(tmp_path)
    for path in tmp_path.glob("images_*/images/*.png"):
        path.rename(path.with_suffix(".jpg"))
    assert build(tmp_path)["test"][0]["image"].endswith("00000003_000.jpg")


def test_two_copies_of_an_image_are_refused(tmp_path: Path) -> None:
    make_set(tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "00000002_000.png").touch()
    message = refused(tmp_path)
    assert "00000002_000.png is there 2 times" in message
    assert "small/00000002_000.png" in message


def test_random_split_needs_no_lists(tmp_path: Path) -> None:
    make_set(tmp_path)
    (tmp_path / "test_list.txt").unlink()
    assert "--split random" in refused(tmp_path)
    content = build(tmp_path, split="random", test_fraction=0.1, val_fraction=0.1)
    sections = {
        item["patient_id"]: name
        for name in ("training", "validation", "test")
        for item in content[name]
    }
    assert len(sections) == 4


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROWS[0], ROWS[0]], ["repeated", "line 3 (00000001_000.png)"]),
        ([ROWS[0].replace("Cardiomegaly", "Cough")], ["line 2 ('Cough')", "Atelectasis"]),
        ([ROWS[0].replace("Cardiomegaly", "No Finding|Mass")], ["line 2 ('No Finding|Mass')"]),
        ([ROWS[0].replace(",0,1,", ",0,7,")], ["line 2", "Patient ID"]),
        ([ROWS[0].replace("Cardiomegaly", "")], ["empty", "line 2 (Finding Labels)"]),
        ([ROWS[0], ROWS[2] + ",extra"], ["line 3 (12 cells)"]),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, rows: list[str], words: list[str]) -> None:
    message = refused(make_set(tmp_path, rows, boxes=None))
    assert all(word in message for word in ["Data_Entry_2017_v2020.csv", *words]), message


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ("00000009_000.png,Mass,1,1,5,5", "unknown images in line 2"),
        ("00000003_000.png,Cough,1,1,5,5", "'Cough'"),
        ("00000003_000.png,Mass,1,1,0,5", "outside"),
        ("00000003_000.png,Mass,1020,1,5,5", "outside"),
        ("00000003_000.png,Mass,1,1,five,5", "'five'"),
    ],
)
def test_wrong_boxes_are_refused(tmp_path: Path, box: str, words: str) -> None:
    message = refused(make_set(tmp_path, boxes=[BOXES[0], box]))
    assert "BBox_List_2017.csv" in message
    assert words in message


def test_wrong_split_lists_are_refused(tmp_path: Path) -> None:
    make_set(tmp_path)
    (tmp_path / "test_list.txt").write_text("00000003_000.png\n")
    assert "neither list of the official split in line 6 (00000004_000.png)" in refused(tmp_path)
    (tmp_path / "test_list.txt").write_text(
        "00000003_000.png\n00000004_000.png\n00000002_000.png\n"
    )
    assert "of the other list" in refused(tmp_path)


def test_patient_in_both_lists_is_refused_or_dropped(tmp_path: Path) -> None:
    make_set(tmp_path)
    (tmp_path / "train_val_list.txt").write_text("00000001_000.png\n00000002_000.png\n")
    (tmp_path / "test_list.txt").write_text(
        "00000001_001.png\n00000003_000.png\n00000004_000.png\n"
    )
    assert "1 patient in two sections: 00000001" in refused(tmp_path)
    content = build(tmp_path, drop_overlap=True, val_fraction=0)
    assert [item["patient_id"] for item in content["training"]] == ["00000002"]
    assert content["numTest"] == 3


@pytest.mark.slow
def test_official_files_at_full_scale(shared_data: Path, tmp_path: Path) -> None:
    labels = shared_data / "labels"
    with gzip.open(labels / "BBox_List_2017.csv.gz", "rt") as stream:
        boxed = {line.split(",")[0] for line in stream.readlines()[1:]}
    for name in sorted(boxed):
        (tmp_path / name).touch()
    whole = NIHReader().read(tmp_path, labels, official=True)
    assert len(whole.images) == 112_120
    assert len({image.item["patient_id"] for image in whole.images}) == 30_805
    assert Counter(image.section for image in whole.images) == {"training": 86_524, "test": 25_596}
    assert sum(image.item["abnormal"] == 0 for image in whole.images) == 60_361
    positives = [sum(image.item["label"][n] for image in whole.images) for n in range(14)]
    published = [
        11559,
        2776,
        13317,
        19894,
        5782,
        6331,
        1431,
        5302,
        4667,
        2303,
        2516,
        1686,
        3385,
        227,
    ]
    assert positives == published
    boxes = Counter(name for image in whole.images for name in image.item.get("box_findings", ()))
    assert sum(boxes.values()) == 984
    assert boxes["Infiltration"] == 123
    assert sum("boxes" in image.item for image in whole.images) == 880 == len(boxed)
    report = write_datalist(
        NIHReader(), tmp_path, tmp_path / "list.json", labels=labels, allow_missing=True
    )
    assert report.num_images == {"training": 0, "validation": 0, "test": 880}
    assert len(report.absent) == 112_120 - 880
