# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The sections of the benchmarks' sets: no patient in two, the lowest numbers validate."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

# benchmarks are imported from the repository's root
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.evidence.radiograph_sets import child_patient, other_normals, pictures, radiograph_table


@pytest.fixture
def child_folder(tmp_path: Path) -> Path:
    names = {
        "train/NORMAL": [f"IM-{number:04}-0001.jpeg" for number in range(200, 210)],
        "train/PNEUMONIA": [
            f"person{number}_virus_{copy}.jpeg" for number in range(1, 11) for copy in (1, 2)
        ],
        "test/NORMAL": ["IM-0001-0001.jpeg", "NORMAL2-IM-0003-0001.jpeg"],
        "test/PNEUMONIA": ["person99_bacteria_1.jpeg"],
    }
    rng = np.random.default_rng(0)
    for folder, files in names.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in files:
            Image.fromarray(rng.integers(0, 255, (40, 40), dtype=np.uint8)).save(
                tmp_path / folder / name
            )
    return tmp_path


def test_the_lowest_fifth_validates_and_no_patient_is_in_two_sections(child_folder: Path) -> None:
    table = radiograph_table(child_folder)
    held_out = table[table["section"] == "validation"]
    assert sorted(set(held_out["patient"])) == ["IM-200", "IM-201", "person1", "person2"]
    assert held_out["label"].tolist() == [0, 0, 1, 1, 1, 1]
    assert (table.groupby("patient")["section"].nunique() == 1).all()
    assert (table["section"] == "test").sum() == 3


def test_a_file_of_another_name_is_told() -> None:
    assert child_patient("person7_bacteria_22.jpeg") == ("person", 7)
    with pytest.raises(ValueError, match=r"x\.jpeg"):
        child_patient("x.jpeg")


def test_pictures_come_standardized_with_what_the_raw_ones_are_like(child_folder: Path) -> None:
    paths = radiograph_table(child_folder)["image"].tolist()[:3]
    images, measured = pictures(paths, size=32)
    assert images.shape == (3, 1, 32, 32)
    assert images.mean().item() == pytest.approx(0.5, abs=0.05)
    raw = np.asarray(Image.open(paths[0])) / 255
    assert measured["brightness"][0] == pytest.approx(raw.mean(), abs=0.02)


def test_the_picture_that_nih_has_too_is_left_out_of_other_normals(tmp_path: Path) -> None:
    for number in (4, 5, 6):
        (tmp_path / f"adult_normal_{number}.jpg").touch()
    assert [path.name for path in other_normals(tmp_path)] == [
        "adult_normal_4.jpg",
        "adult_normal_6.jpg",
    ]
