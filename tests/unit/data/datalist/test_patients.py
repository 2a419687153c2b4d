# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patients by item or file name; sections that share no patient."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pydicom
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from monai_afire.data import load_radiograph_datalist
from monai_afire.data.datalist.patients import item_patients, patient_of, split_by_patient


@pytest.mark.parametrize(
    ("name", "patient"),
    [
        ("images_001/00000013_004.png", "00000013"),
        ("CheXpert/train/patient00042/study1/view1_frontal.jpg", "patient00042"),
        ("files/p10/p10000032/s50414267/02aa804e.dcm", "p10000032"),
        ("sub-03/a.nii.gz", "sub-03"),
        ("Patient_7/p1.png", "Patient_7"),
        ("patient12x/p1.png", "patient12x/p1.png"),
        ("chest1.png", "chest1.png"),
        ("p/IM-0001", "p/IM-0001"),
        ("pa_1.png", "pa_1.png"),
        ("20240101_000.png", "20240101_000.png"),  # a date; NIH has 30,805 patients
        ("p20240101/a.png", "p20240101/a.png"),
    ],
)
def test_patient_of(name: str, patient: str) -> None:
    assert patient_of(name) == patient


@given(
    st.lists(st.text(max_size=4), min_size=2, max_size=60),
    st.floats(0.01, 0.99),
    st.integers(0, 99),
)
def test_split_never_parts_a_patient_and_leaves_no_side_empty(
    patients: list[str], fraction: float, seed: int
) -> None:
    if len(set(patients)) < 2:
        patients = [*patients, "another one"]
    chosen = split_by_patient(patients, fraction, seed)
    sides = {
        p: {side for q, side in zip(patients, chosen, strict=True) if p == q} for p in patients
    }
    assert all(len(side) == 1 for side in sides.values())
    assert set(chosen) == {True, False}


def test_patients_are_told_by_the_item_then_by_the_file_then_by_the_image() -> None:
    items: list[dict[str, Any]] = [
        {"image": "/data/set/00000013_000.png", "patient_id": 7},
        {"image": "/data/set/00000013_001.png", "patient_id": None},
        {"image": "/data/set/00000013_002.png", "patient_id": ""},
        {"image": "/data/set/train/patient00042/study1/view1.jpg", "patient_id": float("nan")},
        {"image": "/data/set/other.png"},
        {"image": "/data/set/./other.png"},
        {"label": 1},
        {"label": 1},
    ]
    expected = [
        "7",
        "00000013",
        "00000013",
        "patient00042",
        "other.png",
        "other.png",
        "item 6",
        "item 7",
    ]
    assert item_patients(items) == expected


def write_dicom(path: Path, patient: str) -> str:
    header = pydicom.Dataset()
    header.file_meta = pydicom.dataset.FileMetaDataset()
    header.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    header.SOPClassUID = header.file_meta.MediaStorageSOPClassUID = (
        pydicom.uid.DigitalXRayImageStorageForPresentation
    )
    header.SOPInstanceUID = header.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    header.PatientID = patient
    path.parent.mkdir(exist_ok=True)
    header.save_as(path, enforce_file_format=True)
    return str(path)


@pytest.mark.parametrize(
    "name",
    [
        "00000013_000.dcm",
        "20240101_000.dcm",
        "p10000032/a.dcm",
        "patient1.dic",
        "sub-1",
        "0/00000013_000.img",
    ],
)
def test_header_beats_the_name_of_the_file(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    assert item_patients([{"image": write_dicom(folder / name, "PAT7")}]) == ["PAT7"]


@pytest.mark.parametrize("nobody", ["", "NA", " none", "ANONYMOUS", "Unknown"])
def test_header_that_names_nobody_leaves_the_name_of_the_file(tmp_path: Path, nobody: str) -> None:
    assert item_patients([{"image": write_dicom(tmp_path / "00000013_000.dcm", nobody)}]) == [
        "00000013"
    ]


def test_one_number_is_one_patient_and_a_word_for_nothing_is_none() -> None:
    given = ["007", 7, "7.0", 7.0, "70", "NA", "None", "n/a", "-", "P007", "P7", "0", "000"]
    items = [{"image": f"{n}.png", "patient_id": patient} for n, patient in enumerate(given)]
    expected = (
        ["007"] * 4 + ["70"] + [f"{n}.png" for n in (5, 6, 7, 8)] + ["P007", "P7", "000", "000"]
    )
    assert item_patients(items) == expected


@pytest.mark.usefixtures("another_drive")
def test_images_on_two_drives_keep_their_whole_paths() -> None:
    items = [{"image": "/c/00000013_004.png"}, {"image": "/d/b.png"}]
    assert item_patients(items) == ["00000013", "/d/b.png"]


def test_unknown_patients_are_told_once_for_all_sections(tmp_path: Path) -> None:
    """Code that changes the filters of warnings makes Python repeat what was said before."""
    for number in range(20):
        Image.new("L", (8, 8)).save(tmp_path / f"{number}.png")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for section in ("training", "validation"):
            load_radiograph_datalist(tmp_path, section=section)
    assert len([each for each in found if "are not known" in str(each.message)]) == 1


def test_split_takes_about_the_fraction() -> None:
    chosen = split_by_patient([str(i) for i in range(4000)], 0.1)
    assert 320 < sum(chosen) < 480
