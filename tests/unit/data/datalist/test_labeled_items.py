# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Labeled items: sections, subsets, folds, labels, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monai_afire.data import DatalistError, labeled_items

SECTIONS = ("training", "validation", "test")


def write_list(folder: Path, **sections: list[Any]) -> str:
    for entries in sections.values():
        for entry in entries:
            name = entry if isinstance(entry, str) else entry["image"]
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    path = folder / "list.json"
    path.write_text(json.dumps(sections))
    return str(path)


def entries(section: str, count: int) -> list[dict[str, Any]]:
    return [
        {"image": f"{section}{n}.png", "label": n % 2, "patient_id": f"{section}{n}"}
        for n in range(count)
    ]


def test_subsets_are_of_training_alone(tmp_path: Path) -> None:
    sections = {
        "training": entries("t", 10),
        "validation": entries("v", 3),
        "test": entries("e", 5),
    }
    path = write_list(tmp_path, **sections)

    def numbers(**choice: Any) -> list[int]:
        return [len(labeled_items(section, datalist=path, **choice)) for section in SECTIONS]

    assert numbers(label_fraction=0.3) == [3, 3, 5]
    assert numbers(num_shots=2) == [2, 3, 5]
    # 18 patients in three folds, then half of one fold
    assert numbers(num_folds=3, label_fraction=0.5) == [3, 6, 6]


# ---- lists and folders of the user


def test_folds_unite_the_sections_and_count_an_image_once(tmp_path: Path) -> None:
    shared, test = entries("s", 1), entries("e", 3)
    path = write_list(
        tmp_path, training=entries("t", 8) + shared, test=shared + test, validation=[]
    )
    folds = [labeled_items("test", datalist=path, num_folds=3, fold=fold) for fold in range(3)]
    images = [item["image"] for items in folds for item in items]
    assert len(images) == len(set(images)) == 12


def test_folder_has_images_and_folds_but_no_labels(tmp_path: Path) -> None:
    for name in ("00000001_000.png", "00000001_001.png", "00000002_000.png", "00000003_000.png"):
        (tmp_path / name).touch()
    tested = [
        labeled_items("test", str(tmp_path), num_folds=3, fold=fold, required=())
        for fold in range(3)
    ]
    assert sorted(len(items) for items in tested) == [1, 1, 2]
    with pytest.raises(DatalistError, match="label"):
        labeled_items("test", str(tmp_path))


# ---- what is refused


def test_normal_item_needs_no_lesion_mask_but_organs(tmp_path: Path) -> None:
    items = [{"image": "a.png", "abnormal": 0}, {"image": "b.png", "abnormal": 0, "mask": None}]
    unknown = [{"image": "c.png", "abnormal": -1}]
    path = write_list(tmp_path, test=items, validation=unknown)
    assert len(labeled_items("test", datalist=path, required=("mask", "lesion_truth"))) == 2
    for section, key in (("test", "organs"), ("validation", "mask")):
        with pytest.raises(DatalistError, match=key):
            labeled_items(section, datalist=path, required=(key,))


@pytest.mark.parametrize("section", SECTIONS)
def test_patient_in_two_sections_is_refused_without_a_warning(tmp_path: Path, section: str) -> None:
    test = [{"image": "x.png", "label": 0, "patient_id": "t1"}]
    path = write_list(tmp_path, training=entries("t", 4), validation=entries("v", 2), test=test)
    with pytest.raises(DatalistError, match=r"t1 \(training, test\)"):
        labeled_items(section, datalist=path)
    assert labeled_items(section, datalist=path, num_folds=3)


@pytest.mark.parametrize(
    "choice",
    [
        {"section": "val"},
        {"label_fraction": 0},
        {"num_shots": 9},
        {"num_folds": 2},
        {"num_folds": 9},
        {"num_folds": 4, "fold": 4},
        {"fold": 1},
        {"label_fraction": 0.5, "num_shots": 2},
        {"required": ["organs"]},
    ],
)
def test_impossible_choices_are_refused(tmp_path: Path, choice: dict[str, Any]) -> None:
    path = write_list(tmp_path, training=entries("t", 4), validation=entries("v", 4))
    with pytest.raises(DatalistError):
        labeled_items(**{"section": "training", "datalist": path, **choice})


# ---- what is learned under another name


@pytest.mark.parametrize("key", ["finding", "mask"])
def test_another_label_takes_its_place_and_decides_the_subset(tmp_path: Path, key: str) -> None:
    items = [
        {**entry, "finding": int(n == 11), "label": int(n == 11), "mask": entry["image"]}
        for n, entry in enumerate(entries("t", 40))
    ]
    path = write_list(tmp_path, training=items)
    chosen = labeled_items("training", datalist=path, label_fraction=0.05, label_key=key)
    assert [item["finding"] for item in chosen].count(1) == 1, "the one positive is among two of 40"
    assert [item["label"] for item in chosen] == [
        str(tmp_path / item["mask"]) if key == "mask" else item["finding"] for item in chosen
    ]
    assert [item["index"] for item in chosen] == [0, 1]
