# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One patient and one image in two sections, however they are written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from monai_afire.data import DatalistError, bundle_items, labeled_items
from unit.transforms.radiograph_files import GRAY12, write_dicom


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate("abcd"):
        (tmp_path / f"{name}.png").write_bytes(bytes(9000) + bytes([number]))
    return tmp_path


def write_list(folder: Path, training: Any, test: Any) -> str:
    names = {"training": [training, {"image": "c.png", "label": 1}], "test": [test]}
    (folder / "list.json").write_text(json.dumps(names))
    return str(folder / "list.json")


@pytest.mark.parametrize("spelling", ["plain", "dot", "absolute", "link"])
def test_one_image_by_two_names(folder: Path, spelling: str) -> None:
    other = {"plain": "a.png", "dot": "./a.png", "absolute": str(folder / "a.png")}.get(
        spelling, "z.png"
    )
    os.symlink(folder / "a.png", folder / "z.png")
    path = write_list(folder, {"image": "a.png", "label": 0}, {"image": other, "label": 0})
    with pytest.warns(UserWarning, match=r"image [^()]*\(training, test\)"):
        bundle_items("training", datalist=path)
    with pytest.raises(DatalistError, match="training, test"):
        labeled_items("training", datalist=path)


@pytest.mark.parametrize(("one", "other"), [("p1", "p1 "), (13, 13.0), (13, "13")])
def test_one_patient_by_two_spellings(folder: Path, one: Any, other: Any) -> None:
    items = [
        {"image": f"{name}.png", "label": 0, "patient_id": id}
        for name, id in (("a", one), ("b", other))
    ]
    path = write_list(folder, *items)
    with pytest.warns(UserWarning, match=r"patient .* \(training, test\)"):
        bundle_items("training", datalist=path)
    with pytest.raises(DatalistError, match="training, test"):
        labeled_items("training", datalist=path)


def test_different_images_and_patients_are_no_leak(
    folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    path = write_list(folder, {"image": "a.png", "label": 0}, {"image": "b.png", "label": 0})
    bundle_items("training", datalist=path)
    assert len(labeled_items("test", datalist=path)) == 1
    assert not [warning for warning in recwarn if "two sections" in str(warning.message)]


@pytest.mark.parametrize("blank", [None, "", "  ", float("nan")])
def test_blank_patients_are_not_one_patient(folder: Path, blank: Any) -> None:
    items = [{"image": f"{name}.png", "patient_id": blank} for name in "abcd"]
    (folder / "list.json").write_text(json.dumps({"training": items}))
    with pytest.warns(UserWarning, match="patient_id"):
        sections = [
            bundle_items(section, datalist=str(folder / "list.json"))
            for section in ("training", "validation")
        ]
    assert sum(map(len, sections)) == 4
    assert all(sections)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two patients, forty files whose names do not tell whose they are."""
    for number in range(40):
        path = tmp_path / f"dicom/ST{number:03d}/IM000"
        path.parent.mkdir(parents=True)
        write_dicom(path, GRAY12, PatientID=f"P{number % 2}")
    return tmp_path / "dicom"


@pytest.mark.parametrize("kind", ["folder", "list"])
def test_dicom_files_are_divided_by_the_patient_in_their_headers(
    archive: Path, tmp_path: Path, kind: str, recwarn: pytest.WarningsRecorder
) -> None:
    source = {"dataset_dir": str(archive)}
    names = sorted(path.relative_to(archive).as_posix() for path in archive.rglob("IM000"))
    if kind == "list":
        (tmp_path / "list.json").write_text(json.dumps({"training": names}))
        source["datalist"] = str(tmp_path / "list.json")
    training, validation = (
        [item["image"] for item in bundle_items(s, **source)] for s in ("training", "validation")
    )
    assert len(training) == len(validation) == 20
    parity = {int(path[-9:-6]) % 2 for path in training}
    assert len(parity) == 1
    assert not [warning for warning in recwarn if "not known" in str(warning.message)]


def test_a_folder_that_all_images_are_in_is_no_patient(tmp_path: Path) -> None:
    home = tmp_path / "subject1"
    home.mkdir()
    items = [{"image": str(home / f"{n}.png"), "label": n % 2} for n in range(4)]
    for number, item in enumerate(items):
        Path(item["image"]).write_bytes(bytes([number]) * 9000)
    lists = tmp_path / "lists"  # the list lies elsewhere
    lists.mkdir()
    (lists / "list.json").write_text(json.dumps({"training": items[:2], "test": items[2:]}))
    parts = [
        labeled_items(datalist=lists / "list.json", section=name)
        for name in ("training", "validation", "test")
    ]
    assert [len(part) for part in parts] == [1, 1, 2]
