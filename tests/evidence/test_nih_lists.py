# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The lists of images that the reports name: who is in them, and who is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence.nih_findings import FINDINGS
from tests.evidence.nih_lists import nih_items, unlabeled

MANIFEST = """image,patient_id,split,findings,view,same_image_in_adult_normals
images/a.jpg,00001,train,Mass|Effusion,PA,
images/b.jpg,00002,train,No Finding,AP,adult_normal_2.jpg
images/c.jpg,00003,val,Hernia,PA,
images/d.jpg,00004,test,Edema,PA,adult_normal_3.jpg
"""
FILES = (
    *("adult_normals/images/adult_normal_1.jpg", "adult_normals/images/adult_normal_2.jpg"),
    *("adult_normals/images/adult_normal_3.jpg", "childcxr/train/NORMAL/IM-0001-0001.jpeg"),
    *("childcxr/train/PNEUMONIA/person1_virus_6.jpeg", "childcxr/test/NORMAL/IM-0009-0001.jpeg"),
    *("childcxr/train/NORMAL/IM-0002-0001.jpeg", "childcxr/train/NORMAL/IM-0003-0001.jpeg"),
    *("childcxr/train/NORMAL/IM-0004-0001.jpeg", "childcxr/train/NORMAL/IM-0005-0001.jpeg"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("nih_cxr_7k/manifest.csv", *FILES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "nih_cxr_7k" / "manifest.csv").write_text(MANIFEST)
    return tmp_path


def test_findings_are_in_the_order_of_their_names_and_hernia_is_abnormal_alone(
    folder: Path,
) -> None:
    items = nih_items(folder / "nih_cxr_7k")
    assert set(items) == {"training", "validation"}
    first, second = items["training"]
    assert [name for name, present in zip(FINDINGS, first["label"], strict=True) if present] == [
        "Effusion",
        "Mass",
    ]
    assert (first["abnormal"], first["patient_id"], first["view"]) == (1, "00001", "PA")
    assert (second["abnormal"], sum(second["label"])) == (0, 0)
    (hernia,) = items["validation"]
    assert (hernia["abnormal"], sum(hernia["label"])) == (1, 0)


def test_nobody_is_pretrained_on_twice_or_tested_on(folder: Path) -> None:
    lists = unlabeled(folder, nih_items(folder / "nih_cxr_7k"))
    names = [Path(item["image"]).name for item in lists["training"]]
    assert names == [
        *("a.jpg", "b.jpg", "adult_normal_1.jpg"),  # adult normals 2 and 3 are images of NIH 7k
        *("IM-0002-0001.jpeg", "IM-0003-0001.jpeg", "IM-0004-0001.jpeg", "IM-0005-0001.jpeg"),
        "person1_virus_6.jpeg",
    ]  # the child with the lowest number validates
    assert [Path(item["image"]).name for item in lists["validation"]] == ["c.jpg"]
