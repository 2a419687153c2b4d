# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The images of a comparison: roles by patient, labels of each kind, view and scanner, and unusable lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from unit.transforms.radiograph_files import write_dicom

from monai_afire.apps.compare import read_cohort
from monai_afire.apps.compare.cohort import CHOOSE, EVALUATE, LEARN
from monai_afire.data.datalist.datalist_checks import DatalistError


def save(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        # two files of the same content would be one image in two sections
        Image.fromarray(np.full((40, 40), 90 + number, np.uint8)).save(folder / name)


def listed(folder: Path, labels: list[Any], **further: Any) -> Path:
    """A list of ten training and ten test images with these labels in turn; two images per patient."""
    items = [
        {"image": f"{n}.png", "label": labels[n % len(labels)], "patient_id": f"p{n // 2}"}
        for n in range(20)
    ]
    save(folder, [item["image"] for item in items])
    path = folder / "list.json"
    path.write_text(json.dumps({"training": items[:10], "test": items[10:], **further}))
    return path


def test_a_fifth_of_the_training_patients_chooses_and_no_patient_has_two_roles(
    tmp_path: Path,
) -> None:
    path = listed(tmp_path, [0, 1])
    cohort = read_cohort(path, tmp_path)
    assert (cohort.table.groupby("patient")["role"].nunique() == 1).all()
    assert len(cohort.rows(EVALUATE)) == 10
    assert 0 < len(cohort.rows(CHOOSE)) < len(cohort.rows(LEARN))
    assert set(cohort.table["abnormal"].iloc[cohort.rows(LEARN, CHOOSE, abnormal=1)]) == {1.0}
    content = json.loads(path.read_text())  # validation is evaluated where there is no test
    path.write_text(json.dumps({"training": content["training"], "validation": content["test"]}))
    assert read_cohort(path, tmp_path).rows(EVALUATE).tolist() == list(range(10, 20))


def test_labels_of_findings(tmp_path: Path) -> None:
    labels: list[Any] = [[1, 0], [0, None], [1, 1], [-1, 0]]
    cohort = read_cohort(listed(tmp_path, labels, finding_names=["Mass", "Edema"]), tmp_path)
    np.testing.assert_array_equal(cohort.labels[:4], [[1, 0], [0, np.nan], [1, 1], [np.nan, 0]])
    assert cohort.names == ["Mass", "Edema"]
    assert cohort.table["label"][:4].tolist() == ["Mass", "none", "several", "none"]


def test_a_table_keeps_view_and_scanner_and_headers_have_them_too(tmp_path: Path) -> None:
    rows = [
        f"{n}.png,{n % 2},p{n},{'train' if n < 8 else 'test'},{('PA', 'AP', '')[n % 3]},Acme"
        for n in range(11)
    ]
    header = "image,label,patient_id,split,view,scanner"
    (tmp_path / "labels.csv").write_text("\n".join([header, *rows, "11.dcm,1,p11,test,,"]))
    save(tmp_path, [f"{n}.png" for n in range(11)])
    write_dicom(
        tmp_path / "11.dcm",
        np.full((40, 40), 90, np.uint8),
        Manufacturer="=Acme",
        ManufacturerModelName="X 1",
        ViewPosition="PA",
    )
    cohort = read_cohort(tmp_path / "labels.csv", tmp_path)
    assert len(cohort.rows(EVALUATE)) == 4
    assert cohort.table["view"][:3].tolist() == ["PA", "AP", "unknown"]
    assert cohort.table.loc[0, "scanner"] == "Acme"
    assert cohort.table.loc[11, ["view", "scanner"]].tolist() == ["PA", "'=Acme X 1"]


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"image": "0.png", "label": 0, "patient_id": "p0"}, "two sections"),
        ({"image": "19.png", "label": 7.5, "patient_id": "new"}, "label"),
        ({"image": "gone.png", "label": 0, "patient_id": "new"}, "gone.png"),
    ],
)
def test_a_list_that_cannot_be_used(tmp_path: Path, item: dict[str, Any], named: str) -> None:
    path = listed(tmp_path, [0, 1])
    path.write_text(json.dumps({**json.loads(path.read_text()), "test": [item]}))
    with pytest.raises(DatalistError, match=named):
        read_cohort(path, tmp_path)
