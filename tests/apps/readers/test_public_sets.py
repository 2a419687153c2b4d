# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Lists of public sets, from tiny tables in the sets' own formats; tables in the place of lists."""

from __future__ import annotations

import gzip
import json
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from monai_afire.apps.compare.cohort import read_cohort
from monai_afire.apps.readers.__main__ import main
from monai_afire.data import bundle_items
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import class_names

COMMANDS = {
    "nih/labels.json": "nih --root nih --allow_missing",
    "nih/normal.json": "nih --root nih --allow_missing --normal_only",
    "chexpert.json": "chexpert --root CheXpert-v1.0-small --frontal_only --findings Atelectasis "
    "Cardiomegaly Consolidation Edema 'Pleural Effusion'",
    "mimic.json": "mimic --root mimic --frontal_only --allow_missing",
    "labels.json": "table --root images --labels . --table findings.csv --image_column 'File Name' "
    "--label_columns Findings --patient_column 'Patient ID' --separator '|'",
}
NIH_HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)
CHEXPERT_HEADER = (
    "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,"
    "Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,"
    "Support Devices"
)


def save_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(zlib.crc32(str(path).encode())).integers(
        0, 256, (40, 40), dtype=np.uint8
    )
    Image.fromarray(values).save(path)


def write_lines(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def make_nih(root: Path) -> None:
    """20 patients for training and 10 for test, as in the edition of 2017; every third image is not downloaded."""
    rows, names = [], []
    for number in range(1, 31):
        names.append(f"{number:08d}_000.png")
        finding = ("No Finding", "Effusion|Mass", "Hernia")[number % 3]
        rows.append(f"{names[-1]},{finding},0,{number},57,M,PA,2682,2749,0.143,0.143,")
        if number % 3 != 2:
            save_image(root / "images_001" / "images" / names[-1])
    write_lines(root / "Data_Entry_2017.csv", NIH_HEADER, *rows)
    write_lines(root / "train_val_list.txt", *names[:20])
    write_lines(root / "test_list.txt", *names[20:])


def make_chexpert(root: Path) -> None:
    for table, folder, first in (("train.csv", "train", 1), ("valid.csv", "valid", 64541)):
        rows = []
        for number in range(first, first + 8):
            place = f"{folder}/patient{number:05d}/study1"
            edema = ("1.0", "0.0", "-1.0", "")[number % 4]
            for view, name in (("Frontal", "view1_frontal"), ("Lateral", "view2_lateral")):
                save_image(root / place / f"{name}.jpg")
                start = f"CheXpert-v1.0-small/{place}/{name}.jpg,Female,60,{view}"
                rows.append(f"{start},{'AP' if view == 'Frontal' else ''},,,,,,{edema},,,,,1.0,,,")
        write_lines(root / table, CHEXPERT_HEADER, *rows)


def make_mimic(root: Path) -> None:
    findings = ",".join(CHEXPERT_HEADER.split(",")[5:])
    splits, labels, views = [], [], []
    for number in range(30):
        patient, study, name = f"{10000000 + number}", f"{50000000 + number}", f"image{number}"
        section = ("train", "validate", "test")[number % 3]
        splits.append(f"{name},{study},{patient},{section}")
        labels.append(f"{patient},{study},{'1.0' if number % 2 else ''}{',' * 13}")
        views.append(f"{name},{'PA' if number % 5 else 'LATERAL'}")
        save_image(root / "files" / f"p{patient[:2]}" / f"p{patient}" / f"s{study}" / f"{name}.jpg")
    start = root / "mimic-cxr-2.0.0"
    write_lines(Path(f"{start}-split.csv.gz"), "dicom_id,study_id,subject_id,split", *splits)
    write_lines(Path(f"{start}-chexpert.csv.gz"), f"subject_id,study_id,{findings}", *labels)
    write_lines(Path(f"{start}-metadata.csv.gz"), "dicom_id,ViewPosition", *views)


def make_table(root: Path) -> None:
    rows = []
    for number in range(30):
        save_image(root / "images" / f"{number}.png")
        rows.append(f"{number}.png,{('Edema|Effusion', 'No Finding')[number % 2]},{number // 2}")
    write_lines(root / "findings.csv", "File Name,Findings,Patient ID", *rows)


def make_list(path: str) -> None:
    assert main([*shlex.split(COMMANDS[path]), "--output", path]) == 0


def test_lists_keep_patients_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_nih(Path("nih"))
    make_chexpert(Path("CheXpert-v1.0-small"))
    make_mimic(Path("mimic"))
    make_table(Path())
    for path in COMMANDS:
        make_list(path)
        training, test = (bundle_items(section, datalist=path) for section in ("training", "test"))
        assert training
        assert test
        assert not {i["patient_id"] for i in training} & {i["patient_id"] for i in test}


def test_labels_of_the_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_nih(Path("nih"))
    make_chexpert(Path("CheXpert-v1.0-small"))
    for path in ("nih/labels.json", "nih/normal.json", "chexpert.json"):
        make_list(path)
    nih = json.loads(Path("nih/labels.json").read_text())
    names = nih["finding_names"]
    for item in nih["test"]:
        found = {name for name, value in zip(names, item["label"], strict=True) if value}
        number = int(item["patient_id"])
        assert found == (set(), {"Effusion", "Mass"}, {"Hernia"})[number % 3]
    normal = json.loads(Path("nih/normal.json").read_text())
    assert {item["abnormal"] for item in normal["training"]} == {0}
    assert {item["abnormal"] for item in normal["test"]} == {0, 1}
    chexpert = json.loads(Path("chexpert.json").read_text())
    assert chexpert["finding_names"][3:] == ["Edema", "Pleural Effusion"]
    assert len(chexpert["test"]) == 8  # the frontal views of valid.csv
    for item in chexpert["test"]:
        number = int(item["patient_id"].removeprefix("patient"))
        assert item["label"][3:] == [(1, 0, -1, None)[number % 4], 1]


def read_as_list(path: Path) -> None:
    bundle_items("training", datalist=str(path))


def name_classes(path: Path) -> None:
    class_names(str(path))


def compare(path: Path) -> None:
    read_cohort(path, path.parent)


@pytest.mark.parametrize("use", [read_as_list, name_classes, compare])
@pytest.mark.parametrize(
    ("name", "columns", "command"),
    [
        ("Data_Entry_2017_v2020.csv", NIH_HEADER.split(","), "monai-afire data nih --root "),
        ("train.csv", CHEXPERT_HEADER.split(","), "monai-afire data chexpert --root "),
        (
            "mimic-cxr-2.0.0-split.csv",
            ["subject_id", "study_id", "split"],
            "monai-afire data mimic --root ",
        ),
        ("table.csv", NIH_HEADER.split(","), "--image_column 'Image Index'"),
        (
            "table.csv",
            CHEXPERT_HEADER.split(","),
            "--image_column Path --label_columns 'No Finding'",
        ),
        ("table.csv", ["File", "Result"], "--image_column COLUMN --label_columns COLUMN"),
    ],
)
def test_a_table_names_the_command_that_makes_a_list(
    tmp_path: Path, use: object, name: str, columns: Sequence[str], command: str
) -> None:
    path = tmp_path / name
    write_lines(path, ",".join(columns), ",".join(["1"] * len(columns)))
    with pytest.raises(DatalistError) as caught:
        use(path)  # type: ignore[operator]
    assert str(path) in str(caught.value)
    assert command in str(caught.value)


def test_the_options_of_the_message_solve_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_table(Path())
    arguments = ["table", "--root", "images", "--labels", ".", "--table", "findings.csv"]
    arguments += ["--output", "labels.json"]
    assert main(arguments) == 1
    advised = capsys.readouterr().err.split("This makes a list: ")[1].strip()
    assert "--image_column COLUMN --label_columns COLUMN" in advised
    solved = advised.replace("COLUMN", "'File Name'", 1)
    solved = solved.replace("COLUMN", "Findings", 1) + " --separator '|'"
    assert main(shlex.split(solved)[2:]) == 0
