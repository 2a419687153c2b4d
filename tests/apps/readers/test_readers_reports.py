# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tests of the readers of sets whose labels come from reports: CheXpert and MIMIC-CXR-JPG."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monai_afire.apps.readers import LabelReader, write_datalist
from monai_afire.apps.readers.chexpert import CHEXPERT_FINDINGS, CheXpertReader, is_abnormal
from monai_afire.apps.readers.mimic import MIMICReader
from monai_afire.data.datalist.loading import DatalistError

FINDINGS = len(CHEXPERT_FINDINGS)


def build(reader: LabelReader, root: Path, **arguments: Any) -> dict[str, Any]:
    report = write_datalist(reader, root, root / "list.json", **arguments)
    return json.loads(report.path.read_text())


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


# ---- CheXpert


def chexpert_row(path: str, projection: str = "AP", **labels: str) -> str:
    cells = [labels.get(name.replace(" ", "_"), "") for name in CHEXPERT_FINDINGS]
    view = "Lateral" if "lateral" in path else "Frontal"
    return ",".join([f"CheXpert-v1.0-small/{path}", "Female", "68", view, projection, *cells])


CHEXPERT_HEADER = ",".join(["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *CHEXPERT_FINDINGS])
TRAIN = [
    chexpert_row(
        "train/patient00001/study1/view1_frontal.jpg", No_Finding="1.0", Support_Devices="1.0"
    ),
    chexpert_row(
        "train/patient00002/study1/view1_frontal.jpg",
        "PA",
        Edema="-1.0",
        Cardiomegaly="0.0",
        Pneumonia="1.0",
    ),
    chexpert_row("train/patient00002/study1/view2_lateral.jpg", "", Edema="-1.0", Pneumonia="1.0"),
    chexpert_row("train/patient00003/study2/view1_frontal.jpg", "LL", Edema="-1.0"),
]
VALID = [chexpert_row("valid/patient64541/study1/view1_frontal.jpg", Edema="0.0", No_Finding="0.0")]


def make_chexpert(folder: Path, train: list[str] = TRAIN, valid: list[str] = VALID) -> Path:
    for name, rows in (("train", train), ("valid", valid)):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.csv").write_text("\n".join([CHEXPERT_HEADER, *rows]) + "\n")
        for row in rows:
            touch(folder.joinpath(*row.split(",")[0].split("/")[1:]))
    return folder


def test_chexpert_excerpt(tmp_path: Path) -> None:
    content = build(CheXpertReader(), make_chexpert(tmp_path), val_fraction=0)
    assert content["finding_names"] == list(CHEXPERT_FINDINGS)
    assert content["label_values"]["null"] == "not mentioned"
    normal, frontal, lateral, uncertain = content["training"]
    assert normal["image"] == "train/patient00001/study1/view1_frontal.jpg"
    assert normal["label"] == [1, *[None] * 12, 1]
    expected: list[int | None] = [None] * FINDINGS
    for name, value in (("Edema", -1), ("Cardiomegaly", 0), ("Pneumonia", 1)):
        expected[CHEXPERT_FINDINGS.index(name)] = value
    assert frontal["label"] == expected
    assert [item["abnormal"] for item in content["training"]] == [0, 1, 1, -1]
    assert [item["view"] for item in content["training"]] == ["AP", "PA", "lateral", "frontal"]
    assert {(item["sex"], item["age"]) for item in content["training"]} == {("Female", "68")}
    assert frontal["patient_id"] == lateral["patient_id"] == "patient00002"
    assert uncertain["patient_id"] == "patient00003"
    assert [item["patient_id"] for item in content["test"]] == ["patient64541"]
    as_array = np.asarray(frontal["label"], dtype="float32")
    assert np.isnan(as_array).sum() == FINDINGS - 3


def test_chexpert_validation_and_test_files(tmp_path: Path) -> None:
    make_chexpert(tmp_path)
    path = "test/patient64741/study1/view1_frontal.jpg"
    header = ",".join(["Path", *CHEXPERT_FINDINGS])
    (tmp_path / "test_labels.csv").write_text(f"{header}\n{path},{','.join(['0'] * FINDINGS)}\n")
    touch(tmp_path / path)
    content = build(CheXpertReader(), tmp_path)
    assert [item["patient_id"] for item in content["validation"]] == ["patient64541"]
    assert [item["label"] for item in content["test"]] == [[0] * FINDINGS]
    assert len(content["training"]) == 4


def test_chexpert_root_around_the_set(tmp_path: Path) -> None:
    make_chexpert(tmp_path / "CheXpert-v1.0-small")
    content = build(CheXpertReader(), tmp_path)
    assert (
        content["test"][0]["image"]
        == "CheXpert-v1.0-small/valid/patient64541/study1/view1_frontal.jpg"
    )


def test_chexpert_frontal_only_needs_no_lateral_images(tmp_path: Path) -> None:
    make_chexpert(tmp_path)
    (tmp_path / "train/patient00002/study1/view2_lateral.jpg").unlink()
    with pytest.raises(DatalistError, match="1 of 5 listed images are not there"):
        build(CheXpertReader(), tmp_path)
    content = build(CheXpertReader(), tmp_path, frontal_only=True)
    views = {item["view"] for name in ("training", "validation", "test") for item in content[name]}
    assert views == {"AP", "PA", "frontal"}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            chexpert_row("train/patient00001/study1/view1_frontal.jpg", Edema="2.0"),
            "Edema has unknown values in line 2",
        ),
        (chexpert_row("train/someone/view1_frontal.jpg"), "no patient in the Path in line 2"),
        ("," + TRAIN[0].split(",", 1)[1], r"empty cells in line 2 \(Path\)"),
    ],
)
def test_chexpert_wrong_rows(tmp_path: Path, row: str, words: str) -> None:
    (tmp_path / "train.csv").write_text(f"{CHEXPERT_HEADER}\n{row}\n")
    with pytest.raises(DatalistError, match=words):
        build(CheXpertReader(), tmp_path)


def test_is_abnormal() -> None:
    def labels(**values: int) -> list[int | None]:
        return [values.get(name.replace(" ", "_")) for name in CHEXPERT_FINDINGS]

    assert is_abnormal(labels(No_Finding=1)) == 0
    assert is_abnormal(labels(No_Finding=1, Support_Devices=1, Edema=0)) == 0
    assert is_abnormal(labels(No_Finding=1, Edema=-1)) == -1
    assert is_abnormal(labels(No_Finding=1, Edema=1)) == 1
    assert is_abnormal(labels(Support_Devices=1)) == -1
    assert is_abnormal(labels(Edema=0)) == -1


def test_chexpert_format_example(shared_data: Path, tmp_path: Path) -> None:
    """The published columns are taken as they are, and read as by another reader."""
    source = shared_data / "labels" / "chexpert_format_example.csv"
    shutil.copy(source, tmp_path / "train.csv")
    with source.open() as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        touch(tmp_path / row["Path"])
    content = build(CheXpertReader(), tmp_path, val_fraction=0)
    assert len(content["training"]) == len(rows) == 175
    for item, row in zip(content["training"], rows, strict=True):
        assert item["image"] == row["Path"]
        assert item["label"] == [
            float(row[name]) if row[name] else None for name in CHEXPERT_FINDINGS
        ]
        assert item["view"] == (row["AP/PA"] or "lateral")


# ---- MIMIC-CXR-JPG

MIMIC_FINDINGS = sorted(CHEXPERT_FINDINGS)
SPLIT = [
    ("aaaa-1", "50000001", "10000032", "train", "PA"),
    ("aaaa-2", "50000001", "10000032", "train", "LATERAL"),
    ("bbbb-1", "50000002", "10000032", "train", "AP"),
    ("cccc-1", "50000003", "11000764", "train", ""),
    ("dddd-1", "50000004", "12000980", "validate", "PA"),
    ("eeee-1", "50000005", "19001217", "test", "PA"),
]
STUDIES = {
    "50000001": {"No Finding": "1.0"},
    "50000002": {"Edema": "1.0", "Fracture": "-1.0", "Atelectasis": "0.0"},
    "50000003": {"No Finding": "1.0", "Support Devices": "1.0"},
    "50000004": {"No Finding": "1.0"},
}


def make_mimic(
    root: Path, labeler: str = "chexpert", studies: dict[str, dict[str, str]] = STUDIES
) -> Path:
    subjects = {study: subject for _, study, subject, _, _ in SPLIT}
    tables = {
        labeler: [["subject_id", "study_id", *MIMIC_FINDINGS]]
        + [
            [subjects[s], s, *(values.get(name, "") for name in MIMIC_FINDINGS)]
            for s, values in studies.items()
        ],
        "split": [
            ["dicom_id", "study_id", "subject_id", "split"],
            *([d, s, p, n] for d, s, p, n, _ in SPLIT),
        ],
        "metadata": [
            [
                "dicom_id",
                "subject_id",
                "study_id",
                "PerformedProcedureStepDescription",
                "ViewPosition",
                "Rows",
            ],
            *([d, p, s, '"CHEST (PA, LAT)"', v, "3056"] for d, s, p, _, v in SPLIT),
        ],
    }
    for name, rows in tables.items():
        with gzip.open(root / f"mimic-cxr-2.0.0-{name}.csv.gz", "wt") as stream:
            stream.write("\n".join(",".join(row) for row in rows) + "\n")
    for dicom, study, subject, _, _ in SPLIT:
        touch(root / f"files/p{subject[:2]}/p{subject}/s{study}/{dicom}.jpg")
    return root


def test_mimic_excerpt(tmp_path: Path) -> None:
    make_mimic(tmp_path)
    report = write_datalist(MIMICReader(), tmp_path, tmp_path / "list.json")
    assert "without labels: 1 image" in str(report)
    content = json.loads(report.path.read_text())
    assert content["finding_names"] == list(CHEXPERT_FINDINGS)
    assert [content[f"num{name}"] for name in ("Training", "Validation", "Test")] == [4, 1, 1]
    assert [item["view"] for item in content["training"]] == ["PA", "lateral", "AP", "unknown"]
    assert [item["abnormal"] for item in content["training"]] == [0, 0, 1, 0]
    third = content["training"][2]
    assert third["image"] == "files/p10/p10000032/s50000002/bbbb-1.jpg"
    assert third["patient_id"] == "10000032"
    values = dict(zip(CHEXPERT_FINDINGS, third["label"], strict=True))
    given = {name: value for name, value in values.items() if value is not None}
    assert given == {"Edema": 1, "Fracture": -1, "Atelectasis": 0}
    assert content["test"][0]["label"] == [None] * FINDINGS


def test_mimic_normal_and_frontal_only(tmp_path: Path) -> None:
    make_mimic(tmp_path)
    content = build(MIMICReader(), tmp_path, normal_only=True, frontal_only=True)
    assert [Path(item["image"]).stem for item in content["training"]] == ["aaaa-1"]
    assert [Path(item["image"]).stem for item in content["validation"]] == ["dddd-1"]
    assert "test" not in content  # nobody knows whether its only image is normal


def test_mimic_labelers(tmp_path: Path) -> None:
    make_mimic(tmp_path, "negbio", {"50000002": {"Mass": "", "Pneumonia": "1.0"}})
    with pytest.raises(DatalistError, match=r"no file mimic-cxr-\*-chexpert.csv"):
        build(MIMICReader(), tmp_path)
    content = build(MIMICReader(labeler="negbio"), tmp_path)
    assert content["training"][2]["label"][CHEXPERT_FINDINGS.index("Pneumonia")] == 1
    assert content["settings"]["labeler"] == "negbio"


def test_mimic_findings_are_chosen_for_each_image_of_a_study(tmp_path: Path) -> None:
    content = build(MIMICReader(), make_mimic(tmp_path), findings=["Edema", "No Finding"])
    assert [item["label"] for item in content["training"]] == [
        [None, 1],
        [None, 1],
        [1, None],
        [None, 1],
    ]


def test_mimic_without_metadata_and_with_an_unknown_split(tmp_path: Path) -> None:
    make_mimic(tmp_path)
    (tmp_path / "mimic-cxr-2.0.0-metadata.csv.gz").unlink()
    report = write_datalist(MIMICReader(), tmp_path, tmp_path / "list.json")
    assert "views unknown" in str(report)
    with pytest.raises(DatalistError, match="frontal"):
        build(MIMICReader(), tmp_path, frontal_only=True)
    path = tmp_path / "mimic-cxr-2.0.0-split.csv.gz"
    path.write_bytes(
        gzip.compress(gzip.decompress(path.read_bytes()).replace(b"validate", b"holdout"))
    )
    with pytest.raises(
        DatalistError, match=r"line 6 \('holdout'\); accepted: train, validate, test"
    ):
        build(MIMICReader(), tmp_path)
