# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of the readers of sets with masks and boxes: SIIM-ACR, RSNA Pneumonia, ChestX-Det."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from monai_afire.apps.readers import LabelReader, write_datalist
from monai_afire.apps.readers.chestx_det import CHESTX_DET_FINDINGS, ChestXDetReader
from monai_afire.apps.readers.rsna import RSNAReader
from monai_afire.apps.readers.siim import SIIMReader
from monai_afire.data.datalist.loading import DatalistError


def build(reader: LabelReader, root: Path, **arguments: Any) -> dict[str, Any]:
    report = write_datalist(reader, root, root / "list.json", **arguments)
    return json.loads(report.path.read_text())


def items_of(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Items of all sections by the name of the image."""
    items = [item for name in ("training", "validation", "test") for item in content.get(name, ())]
    return {Path(item["image"]).name: item for item in items}


def write_dicom(path: Path, **values: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPInstanceUID = generate_uid()
    dataset.SOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    for name, value in values.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)


# ---- SIIM-ACR

SIIM = [
    ("1.2.3.1", " -1"),
    ("1.2.3.2", "102410 20 1004 20"),
    ("1.2.3.3", "0 5 1019 5"),
    ("1.2.3.3", "1048570 6"),
    ("1.2.3.4", "-1"),
]


def make_siim(
    root: Path, rows: list[tuple[str, str]] = SIIM, header: str = "ImageId, EncodedPixels"
) -> Path:
    (root / "train-rle.csv").write_text(
        "\n".join([header, *(f"{name},{code}" for name, code in rows)]) + "\n"
    )
    for name, _ in rows:
        (root / "images").mkdir(exist_ok=True)
        (root / "images" / f"{name}.png").touch()
    return root


@pytest.mark.parametrize("header", ["ImageId, EncodedPixels", "ImageId,EncodedPixels"])
def test_siim_excerpt_with_masks(tmp_path: Path, header: str) -> None:
    make_siim(tmp_path, header=header)
    items = items_of(build(SIIMReader(), tmp_path, mask_dir=tmp_path / "masks"))
    assert {name: item["label"] for name, item in items.items()} == {
        "1.2.3.1.png": 0,
        "1.2.3.2.png": 1,
        "1.2.3.3.png": 1,
        "1.2.3.4.png": 0,
    }
    masks = {name: np.asarray(Image.open(tmp_path / item["mask"])) for name, item in items.items()}
    for mask in masks.values():
        assert mask.shape == (1024, 1024)
        assert set(np.unique(mask)) <= {0, 255}
    square = np.zeros((1024, 1024), bool)
    square[10:30, 100:102] = True
    np.testing.assert_array_equal(masks["1.2.3.2.png"] > 0, square)
    union = np.zeros((1024, 1024), bool)
    union[:5, :2] = union[1018:, 1023] = True  # both rows of the image
    np.testing.assert_array_equal(masks["1.2.3.3.png"] > 0, union)
    assert not masks["1.2.3.1.png"].any()
    # one file serves all images without pneumothorax, and nothing half-written is left
    assert sorted(path.name for path in (tmp_path / "masks").iterdir()) == [
        "1.2.3.2_mask.png",
        "1.2.3.3_mask.png",
        "empty_1024x1024_mask.png",
    ]
    # masks in the folder of the images do not confuse a second run
    assert items_of(build(SIIMReader(), tmp_path, mask_dir=tmp_path / "masks")) == items


def test_siim_without_masks_and_normal_only(tmp_path: Path) -> None:
    items = items_of(build(SIIMReader(), make_siim(tmp_path)))
    assert all("mask" not in item for item in items.values())
    assert {item["abnormal"] for item in items.values()} == {1, -1}
    with pytest.raises(DatalistError, match="no training image is known to be normal"):
        build(SIIMReader(), tmp_path, normal_only=True)


def test_siim_patients_come_from_dicom_headers(tmp_path: Path) -> None:
    make_siim(tmp_path)
    shutil.rmtree(tmp_path / "images")
    for number in range(1, 5):
        path = tmp_path / f"dicom/study{number}/series/1.2.3.{number}.dcm"
        write_dicom(path, PatientID=f"patient{number % 2}", ViewPosition="PA" if number > 1 else "")
    items = items_of(build(SIIMReader(), tmp_path, val_fraction=0, test_fraction=0))
    assert [item["patient_id"] for item in items.values()] == [
        "patient1",
        "patient0",
        "patient1",
        "patient0",
    ]
    assert [item["view"] for item in items.values()] == ["frontal", "PA", "PA", "PA"]
    (tmp_path / "dicom/study1/series/1.2.3.1.dcm").write_bytes(b"")
    with pytest.raises(DatalistError, match=r"1\.2\.3\.1\.dcm: is not readable as DICOM"):
        build(SIIMReader(), tmp_path)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("1.2.3.5", "1 2 3"), r"line 7 \(.* 3 numbers"),
        (("1.2.3.5", "1048570 7"), r"line 7 \(.*ends at pixel 1048577 of 1048576"),
        (("1.2.3.5", ""), r"empty cells in line 7 \(EncodedPixels\)"),
        (("1.2.3.4", "0 5"), "both with and without pneumothorax in line 7"),
        (("1.2.3.3", "-1"), "both with and without pneumothorax in line 7"),
    ],
)
def test_siim_wrong_rows(tmp_path: Path, row: tuple[str, str], words: str) -> None:
    with pytest.raises(DatalistError, match=words):
        build(SIIMReader(), make_siim(tmp_path, [*SIIM, row]))


def test_siim_format_example(shared_data: Path, tmp_path: Path) -> None:
    shutil.copy(shared_data / "labels" / "siim_format_example.csv", tmp_path / "train-rle.csv")
    for number in range(1, 6):
        (tmp_path / f"1.2.3.{number}.png").touch()
    items = items_of(
        build(SIIMReader(), tmp_path, mask_dir=tmp_path / "masks", val_fraction=0, test_fraction=0)
    )
    areas = [
        int((np.asarray(Image.open(tmp_path / item["mask"])) > 0).sum()) for item in items.values()
    ]
    assert areas == [0, 10, 60 + 14, 0, 6]
    assert [item["label"] for item in items.values()] == [int(area > 0) for area in areas]


# ---- RSNA Pneumonia

RSNA_HEADER = "patientId,x,y,width,height,Target"
RSNA = [
    "aa-1,,,,,0",
    "aa-2,264.0,152.0,213.0,379.0,1",
    "aa-2,562.0,152.0,256.0,453.0,1",
    "aa-3,,,,,0",
]
CLASSES = [
    "aa-1,No Lung Opacity / Not Normal",
    "aa-2,Lung Opacity",
    "aa-2,Lung Opacity",
    "aa-3,Normal",
]


def make_rsna(root: Path, rows: list[str] = RSNA, classes: list[str] | None = CLASSES) -> Path:
    (root / "stage_2_train_labels.csv").write_text("\n".join([RSNA_HEADER, *rows]) + "\n")
    if classes:
        (root / "stage_2_detailed_class_info.csv").write_text(
            "\n".join(["patientId,class", *classes]) + "\n"
        )
    for row in rows:
        write_dicom(root / f"stage_2_train_images/{row.split(',')[0]}.dcm", ViewPosition="AP")
    return root


def test_rsna_excerpt(tmp_path: Path) -> None:
    content = build(RSNAReader(), make_rsna(tmp_path), val_fraction=0, test_fraction=0)
    assert content["labels"] == {"0": "no lung opacity", "1": "lung opacity"}
    first, second, third = content["training"]
    assert second == {
        "image": "stage_2_train_images/aa-2.dcm",
        "label": 1,
        "abnormal": 1,
        "patient_id": "aa-2",
        "view": "AP",
        "boxes": [[264, 152, 213, 379], [562, 152, 256, 453]],
    }
    assert [first["label"], first["abnormal"], first["boxes"]] == [0, 1, []]
    assert [third["label"], third["abnormal"], third["boxes"]] == [0, 0, []]
    content = build(RSNAReader(three_classes=True), tmp_path, val_fraction=0, test_fraction=0)
    assert [item["label"] for item in content["training"]] == [1, 2, 0]
    assert list(content["labels"]) == ["0", "1", "2"]


def test_rsna_without_classes_nobody_is_known_to_be_normal(tmp_path: Path) -> None:
    make_rsna(tmp_path, classes=None)
    report = write_datalist(RSNAReader(), tmp_path, tmp_path / "list.json")
    assert "normal images unknown" in str(report)
    abnormal = {
        name: item["abnormal"]
        for name, item in items_of(json.loads(report.path.read_text())).items()
    }
    assert abnormal == {"aa-1.dcm": -1, "aa-2.dcm": 1, "aa-3.dcm": -1}
    with pytest.raises(DatalistError, match="normal"):
        build(RSNAReader(), tmp_path, normal_only=True)
    with pytest.raises(DatalistError, match=r"stage_2_detailed_class_info\.csv"):
        build(RSNAReader(three_classes=True), tmp_path)


def test_rsna_patients_of_the_mapping_stay_together(tmp_path: Path) -> None:
    make_rsna(tmp_path)
    mapping = [
        {"img_id": f"{patient}_00{n}.png", "subset_img_id": f"aa-{n}", "orig_labels": []}
        for n, patient in ((1, "00000007"), (2, "00000009"), (3, "00000007"))
    ]
    (tmp_path / "pneumonia-challenge-dataset-mappings_2018.json").write_text(json.dumps(mapping))
    content = build(RSNAReader(), tmp_path, val_fraction=0, test_fraction=0.5)
    patients = (
        {item["patient_id"] for item in content["training"]},
        {item["patient_id"] for item in content["test"]},
    )
    assert sorted(map(sorted, patients)) == [["00000007"], ["00000009"]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["a,,,,,1"], "line 2"),
        (["a,1,1,5,5,0"], r"line 2 \(a box with Target 0\)"),
        (["a,1,1,5,5,2"], r"Target has unknown values in line 2 \('2'\)"),
        (["a,1,1,0,5,1"], "inside 1024 x 1024"),
        (["a,1000,1,25,5,1"], "inside 1024 x 1024"),
        (["a,1,1,5,nan,1"], r"height is not a number in line 2 \('nan'\)"),
        (["a,1,1,5,5,1", "a,,,,,0"], r"line 3 \(a with another Target\)"),
    ],
)
def test_rsna_wrong_rows(tmp_path: Path, rows: list[str], words: str) -> None:
    with pytest.raises(DatalistError, match=words):
        build(RSNAReader(), make_rsna(tmp_path, rows, classes=None))


def test_rsna_classes_that_contradict_or_lack_images(tmp_path: Path) -> None:
    make_rsna(tmp_path, classes=["aa-1,Normal", "aa-2,Normal", "aa-3,Normal"])
    with pytest.raises(DatalistError, match=r"line 3 \(aa-2: Normal\)"):
        build(RSNAReader(), tmp_path)
    make_rsna(tmp_path, classes=["aa-1,Normal", "aa-2,Lung Opacity"])
    with pytest.raises(DatalistError, match="lacks 1 image, such as aa-3"):
        build(RSNAReader(), tmp_path)


# ---- ChestX-Det

SQUARE = [[100, 200], [110, 200], [110, 220], [100, 220]]
MARK: dict[str, Any] = {
    "file_name": "1.png",
    "syms": ["Mass"],
    "boxes": [[100, 200, 110, 220]],
    "polygons": [SQUARE],
}
NOTHING: dict[str, Any] = {"file_name": "2.png", "syms": [], "boxes": [], "polygons": []}


def make_chestx_det(root: Path, train: Any = (MARK,), test: Any = (NOTHING,)) -> Path:
    for name, marks in (("train", train), ("test", test)):
        (root / f"ChestX_Det_{name}.json").write_text(json.dumps(marks))
        (root / name).mkdir(exist_ok=True)
        for mark in marks:
            (root / name / mark["file_name"]).touch()
    return root


def test_chestx_det_excerpt(tmp_path: Path) -> None:
    make_chestx_det(tmp_path)
    content = build(ChestXDetReader(), tmp_path, val_fraction=0, mask_dir=tmp_path / "masks")
    [marked], [empty] = content["training"], content["test"]
    assert marked["label"] == [int(name == "Mass") for name in CHESTX_DET_FINDINGS]
    assert marked["boxes"] == [[100, 200, 10, 20]]
    assert marked["box_findings"] == ["Mass"]
    assert marked["polygons"] == [SQUARE]
    assert [marked["abnormal"], empty["abnormal"]] == [1, 0]
    assert [marked["image"], empty["image"]] == ["train/1.png", "test/2.png"]
    mask = np.asarray(Image.open(tmp_path / marked["mask"]))
    rows, columns = np.nonzero(mask)
    assert [rows.min(), rows.max(), columns.min(), columns.max()] == [200, 220, 100, 110]
    assert len(rows) == 11 * 21
    assert not np.asarray(Image.open(tmp_path / empty["mask"])).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"syms": ["Cough"]}, "unknown finding 'Cough'"),
        ({"boxes": []}, "differ in number"),
        ({"boxes": [[110, 200, 100, 220]]}, "x1, y1, x2, y2"),
        ({"polygons": [[[1, 2, 3]]]}, "not x, y"),
        ({"polygons": [[1, 2]]}, "not a number"),
        ({"boxes": [[1, 2, 3, "x"]]}, "not a number"),
        ({"syms": None}, "not arrays"),
        ({"file_name": "2.png"}, "annotated twice: 2.png"),
    ],
)
def test_chestx_det_wrong_annotations(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(DatalistError, match=words):
        build(ChestXDetReader(), make_chestx_det(tmp_path, [{**MARK, **change}]))
