# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patients by item or file name; sections that share no patient."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    ],
)
def test_patient_of(name: str, patient: str) -> None:
    assert patient_of(name) == patient


@given(st.lists(st.text(max_size=4), min_size=2, max_size=60), st.floats(0.01, 0.99), st.integers(0, 99))
def test_split_never_parts_a_patient_and_leaves_no_side_empty(patients: list[str], fraction: float, seed: int) -> None:
    if len(set(patients)) < 2:
        patients = [*patients, "another one"]
    chosen = split_by_patient(patients, fraction, seed)
    sides = {p: {side for q, side in zip(patients, chosen, strict=True) if p == q} for p in patients}
    assert all(len(side) == 1 for side in sides.values())
    assert set(chosen) == {True, False}


def test_split_takes_about_the_fraction() -> None:
    chosen = split_by_patient([str(i) for i in range(4000)], 0.1)
    assert 320 < sum(chosen) < 480


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
    expected = ["7", "00000013", "00000013", "patient00042", "other.png", "other.png", "item 6", "item 7"]
    assert item_patients(items) == expected


def test_single_item_of_a_folder_is_its_patient() -> None:
    assert item_patients([{"image": "/a/b/c.png"}]) == ["c.png"]
    assert item_patients([]) == []


@pytest.mark.usefixtures("another_drive")
def test_images_on_two_drives_keep_their_whole_paths() -> None:
    items = [{"image": "/c/00000013_004.png"}, {"image": "/d/b.png"}]
    assert item_patients(items) == ["00000013", "/d/b.png"]
