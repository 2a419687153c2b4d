# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Items of datalists and folders."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from monai_afire.data import (
    DatalistError,
    load_radiograph_datalist,
    scan_radiographs,
)
from monai_afire.data.datalist.scanning import mark_results

WriteList = Callable[[Any], Path]


@pytest.fixture
def write_list(tmp_path: Path) -> WriteList:
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()

    def write(content: Any) -> Path:
        path = tmp_path / "list.json"
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def touch(root: Path, *files: str) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def names(items: list[dict[str, Any]]) -> list[str]:
    return [os.path.basename(item["image"]) for item in items]


# ---- datalist files


def test_names_start_from_dataset_dir(write_list: WriteList, tmp_path: Path) -> None:
    touch(tmp_path, "images/d.png")
    content = {"training": [{"image": "d.png", "label": 1}, str(tmp_path / "a.png")]}
    path = write_list("\ufeff" + json.dumps(content))
    assert load_radiograph_datalist(tmp_path / "images", path) == [
        {"image": str(tmp_path / "images/d.png"), "label": 1},
        {"image": str(tmp_path / "a.png")},
    ]


def test_masks_by_organ_are_put_in_the_order_of_the_names(
    write_list: WriteList, tmp_path: Path
) -> None:
    masks = {"heart": "b.png", "lung": "c.png"}
    content = {"organ_names": ["lung", "heart"], "training": [{"image": "a.png", "mask": masks}]}
    [item] = load_radiograph_datalist(datalist=write_list(content))
    assert item["organs"] == [str(tmp_path / "c.png"), str(tmp_path / "b.png")]
    for organ_names in (["lung"], None):
        with pytest.raises(DatalistError, match="organ_names"):
            load_radiograph_datalist(datalist=write_list({**content, "organ_names": organ_names}))


REFUSED: dict[str, Any] = {
    "no JSON": '{"training": [{"image": "a.png"},\n',
    "too deep": "[" * 200_000 + "]" * 200_000,
    "section twice": '{"training": ["a.png"], "test": ["b.png"], "training": ["c.png"]}',
    "key twice": '{"training": [{"image": "a.png", "label": 1, "label": 0}]}',
    "an array": [{"image": "a.png"}],
    "no section": {"test": ["a.png"]},
    "no image": {"training": [{"image": "a.png"}, {"img": "b.png"}]},
    "a number": {"training": [{"image": "a.png"}, 3]},
    "an empty name": {"training": [{"image": ""}]},
    "a folder": {"training": ["a.png", "folder.png"]},
    "no mask": {"training": [{"image": "a.png", "mask": ["b.png", None]}]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_lists_are_named(write_list: WriteList, name: str) -> None:
    with pytest.raises(DatalistError, match=r"list\.json"):
        load_radiograph_datalist(datalist=write_list(REFUSED[name]))


def test_refused_arguments(tmp_path: Path) -> None:
    touch(tmp_path, "patient00001/1.png", "patient00001/2.png", "empty/notes.txt")
    for arguments, words in (
        ({"datalist": tmp_path / "none.json"}, "none.json"),
        ({"dataset_dir": tmp_path / "none"}, "none"),
        ({"dataset_dir": tmp_path / "empty"}, "empty"),
        ({"dataset_dir": tmp_path, "section": "holdout"}, "holdout"),
        ({"dataset_dir": tmp_path, "validation_fraction": 1.0}, "validation_fraction"),
        ({"dataset_dir": tmp_path}, "one patient"),
    ):
        with pytest.raises(DatalistError, match=words):
            load_radiograph_datalist(**arguments)


def test_missing_files_are_counted_and_named(write_list: WriteList, tmp_path: Path) -> None:
    present = [f"p{i}.png" for i in range(3)]
    touch(tmp_path, *present)
    os.symlink("circle.png", tmp_path / "circle.png")
    path = write_list({"training": [*present, "no0.png", "circle.png"]})
    with pytest.raises(DatalistError, match=r"2 of 5.*no0\.png"):
        load_radiograph_datalist(datalist=path)
    assert len(load_radiograph_datalist(datalist=path, check_files=False)) == 5


# ---- folders


def test_scan_finds_radiographs_only(tmp_path: Path) -> None:
    touch(tmp_path, "z.png", "A/b (PA).PNG", "A/ü.jpeg", "c.nii.gz", "d.xyz", "notes", "list.json")
    touch(tmp_path, ".hidden.png", "__MACOSX/e.png", "folder.png/f.tif")
    for name in ("IM-0001", "1.2.840.7", "GE0001.img", "DICOMDIR"):
        (tmp_path / name).write_bytes(bytes(128) + b"DICM")
    os.symlink(tmp_path, tmp_path / "A" / "loop")
    found = ["1.2.840.7", "A/b (PA).PNG", "A/ü.jpeg", "GE0001.img", "IM-0001", "c.nii.gz"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scan_radiographs(f"{tmp_path}/") == [*found, "folder.png/f.tif", "z.png"]


def test_what_may_hold_radiographs_is_counted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "a.png", "notes.txt", "labels.csv", "closed/y.png")
    Image.new("L", (40, 40)).save(tmp_path / "d", "PNG")
    for name in ("broken.png", "broken.txt"):
        os.symlink("nowhere", tmp_path / name)
    list_folder = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.warns(UserWarning, match=r"3 entries") as caught:
        assert scan_radiographs(tmp_path) == ["a.png"]
    assert "labels" not in str(caught[0].message)


def test_results_in_the_folder_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "out/overlays/a.png.jpg", "out/roc.png", "day/b.png")
    mark_results(tmp_path / "out", [str(tmp_path / "a.png")], ["overlays"])
    with pytest.warns(UserWarning, match="out"):
        assert scan_radiographs(tmp_path) == ["a.png", "day/b.png"]
    assert len(scan_radiographs(tmp_path / "out")) == 2  # who names the folder wants it
    mark_results(tmp_path / "day", [str(tmp_path / "day/b.png")], ["overlays"])
    touch(tmp_path, "day/overlays/b.png.jpg")
    with pytest.warns(UserWarning, match="overlays"):
        assert scan_radiographs(tmp_path / "day") == ["b.png"]


def test_folder_is_parted_by_patient(tmp_path: Path) -> None:
    files = [f"{patient:08d}_{number:03d}.png" for patient in range(40) for number in range(3)]
    touch(tmp_path, *files)

    def part(section: str = "training", **options: Any) -> list[str]:
        settings = {"section": section, "validation_fraction": 0.25, **options}
        return names(load_radiograph_datalist(tmp_path, **settings))

    training, validation = part(), part("validation")
    assert sorted(training + validation) == part("test")
    assert not {name[:8] for name in training} & {name[:8] for name in validation}
    assert 4 * 3 <= len(validation) <= 16 * 3
    assert training != part(seed=1)
    touch(tmp_path, "99999999_000.png")  # a new file moves no old one
    assert [name for name in part() if not name.startswith("9")] == training


# ---- validation that a list has not


def held_out(tmp_path: Path, entries: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    touch(tmp_path, *(entry["image"] for entry in entries))
    source = tmp_path / "list.json"
    source.write_text(json.dumps({"training": entries, "test": ["test.png"]}))
    return [
        load_radiograph_datalist(None, source, part, hold_out=True)
        for part in ("training", "validation")
    ]


def test_validation_is_held_out_of_a_list_without_it(tmp_path: Path) -> None:
    entries = [{"image": f"{number}.png", "patient_id": f"p{number // 2}"} for number in range(40)]
    parts = held_out(tmp_path, entries)
    patients = [{item["patient_id"] for item in part} for part in parts]
    assert sum(map(len, parts)) == 40
    assert all(patients)
    assert not patients[0] & patients[1]
    # a section of its own is taken as it is
    content = {"training": entries[:30], "validation": entries[30:]}
    (tmp_path / "list.json").write_text(json.dumps(content))
    own = load_radiograph_datalist(None, tmp_path / "list.json", "training", hold_out=True)
    assert len(own) == 30


@pytest.mark.parametrize("kind", ["findings", "classes"])
def test_each_finding_has_positives_in_validation_where_it_can(tmp_path: Path, kind: str) -> None:
    entries: list[dict[str, Any]] = [
        {"image": f"{number}.png", "patient_id": f"p{number}", "label": number % 2}
        for number in range(60)
    ]
    training, validation = (names(part) for part in held_out(tmp_path, entries))
    rare, single = training[:3], training[3]
    for entry in entries:
        labels = [entry["label"], int(entry["image"] in rare), int(entry["image"] == single)]
        one_class = 2 if labels[1] else 3 if labels[2] else labels[0]
        entry["label"] = labels if kind == "findings" else one_class
    learned, validated = (names(part) for part in held_out(tmp_path, entries))
    [moved] = set(validated) - set(validation)  # all others keep their place
    assert moved in rare
    assert single in learned  # nothing could be learned of it otherwise
    assert sorted(learned + validated) == sorted(training + validation)


def test_a_new_image_in_another_folder_moves_no_other_image(tmp_path: Path) -> None:
    entries = [{"image": f"a/{number}.png"} for number in range(40)]
    before, after = (
        set(names(held_out(tmp_path, entries + new)[1])) for new in ([], [{"image": "b/new.png"}])
    )
    assert before
    assert after - {"new.png"} == before
