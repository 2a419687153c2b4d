# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patients by item or file name; sections that share no patient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monai_afire.data import split_by_patient
from monai_afire.data.datalist.patients import item_patients, patient_of
from unit.transforms.radiograph_files import GRAY12, write_dicom


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
    sides = set(zip(patients, chosen, strict=True))
    assert len(sides) == len(set(patients))
    assert set(chosen) == {True, False}


def test_patients_are_told_by_the_item_then_by_the_file_then_by_the_image() -> None:
    items_and_patients: list[tuple[dict[str, Any], str]] = [
        ({"image": "/data/set/00000013_000.png", "patient_id": 7}, "7"),
        ({"image": "/data/set/00000013_001.png", "patient_id": None}, "00000013"),
        ({"image": "/data/set/00000013_002.png", "patient_id": ""}, "00000013"),
        ({"image": "/data/set/patient00042/1.jpg", "patient_id": float("nan")}, "patient00042"),
        ({"image": "/data/set/other.png"}, "other.png"),
        ({"image": "/data/set/./other.png"}, "other.png"),
        ({"label": 1}, "item 6"),
        ({"label": 1}, "item 7"),
    ]
    items, patients = zip(*items_and_patients, strict=True)
    assert item_patients(items) == list(patients)


@pytest.mark.parametrize("name", ["00000013_000.dcm", "p10000032/a.dcm", "0/000.img"])
@pytest.mark.parametrize("patient", ["PAT7", "", " none", "ANONYMOUS"])
def test_header_beats_the_name_of_the_file_unless_it_names_nobody(
    tmp_path: Path, name: str, patient: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    write_dicom(tmp_path / name, GRAY12, bits=12, PatientID=patient)
    expected = patient if patient == "PAT7" else patient_of(name)
    items = [{"image": str(tmp_path / name)}]
    assert item_patients(items, base=str(tmp_path)) == [expected]


def test_one_number_is_one_patient_and_a_word_for_nothing_is_none() -> None:
    given = ["007", 7, "7.0", 7.0, "70", "NA", "None", "n/a", "-", "P007", "P7", "0", "000"]
    items = [{"image": f"{n}.png", "patient_id": patient} for n, patient in enumerate(given)]
    expected = (
        ["007"] * 4 + ["70"] + [f"{n}.png" for n in (5, 6, 7, 8)] + ["P007", "P7", "000", "000"]
    )
    assert item_patients(items) == expected
