# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""CheXpert: labels from reports with uncertain and missing values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from monai_afire.apps.readers.images import existing_files
from monai_afire.apps.readers.label_reader import UNCERTAIN, LabeledImage, LabeledSet, LabelReader
from monai_afire.apps.readers.label_tables import find_label_file, find_optional_file, read_table
from monai_afire.data.datalist.patients import patient_of

CHEXPERT_FINDINGS = (
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
)
# for the datalist's header
LABEL_VALUES = {"1": "present", "0": "absent", "-1": "uncertain", "null": "not mentioned"}
_FOLDERS = ("train", "valid", "test")


@dataclass
class CheXpertReader(LabelReader):
    """
    Labels of 14 observations: "label" is a list of 1, 0, -1 (uncertain) and null (not mentioned).

    From https://stanfordmlgroup.github.io/competitions/chexpert ::

        ROOT/train.csv, valid.csv         as published; valid.csv is the test section ...
        ROOT/test.csv or test_labels.csv  ... unless the test set is there: then it is the validation section
        ROOT/train/patient00001/study1/view1_frontal.jpg ...

    ROOT is the folder CheXpert-v1.0 or CheXpert-v1.0-small, or the one around it.
    """

    title = "CheXpert"
    reference = "Irvin et al., CheXpert, AAAI 2019"
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        train = find_label_file(labels, ["train.csv"], "labels")
        valid = find_optional_file(labels, ["valid.csv"], "labels of the validation set")
        test = find_optional_file(labels, ["test.csv", "test_labels.csv"], "labels of the test set")
        sources = [
            (train, "training"),
            (valid, "test" if test is None else "validation"),
            (test, "test"),
        ]
        images = []
        for path, section in sources:
            if path is not None:
                images += _read_images(path, root, section if official else None)
        untested = (
            "valid.csv is the test section" if valid else "neither valid.csv nor test.csv is there"
        )
        return LabeledSet(
            images,
            {"finding_names": list(CHEXPERT_FINDINGS), "label_values": LABEL_VALUES},
            [] if test else [untested],
        )


def is_abnormal(values: Sequence[int | None]) -> int:
    """Whether the labels of an image say that it is abnormal."""
    no_finding, diseases = values[0], values[1:-1]
    if 1 in diseases:
        return 1
    return 0 if no_finding == 1 and UNCERTAIN not in diseases else UNCERTAIN


def _read_images(path: Path, root: Path, section: str | None) -> list[LabeledImage]:
    table = read_table(path, ["Path", *CHEXPERT_FINDINGS], filled=["Path"], unique="Path")
    names = table.column("Path")
    unknown = (
        (line, name) for line, name in table.cells["Path"].items() if patient_of(name) == name
    )
    table.refuse(
        unknown, "no patient in the Path", "expected .../patient00001/study1/view1_frontal.jpg"
    )
    projections = table.column("AP/PA") if "AP/PA" in table.cells else [""] * len(table)
    base = _base_folder(names[0], root)
    files = existing_files([os.path.join(base, *_below_set(name)) for name in names])
    images = []
    groups = table.described(sex="Sex", age="Age")
    rows = zip(names, files, table.findings(CHEXPERT_FINDINGS), projections, groups, strict=True)
    for name, file, values, projection, group in rows:
        frontal = projection if projection in ("AP", "PA") else "frontal"
        view = "lateral" if "lateral" in name.rsplit("/", 1)[-1].lower() else frontal
        item = {
            "label": values,
            "abnormal": is_abnormal(values),
            "patient_id": patient_of(name),
            "view": view,
        }
        item |= group
        images.append(LabeledImage(name, file, item, section))
    return images


def _below_set(name: str) -> tuple[str, ...]:
    """Parts of a listed path without the name of the set in front."""
    parts = PurePosixPath(name).parts
    return parts if parts[0] in _FOLDERS else parts[1:]


def _base_folder(name: str, root: Path) -> Path:
    """Folder in which train, valid and test lie: the root, or the set's folder in it."""
    inside = root / PurePosixPath(name).parts[0]
    split = _below_set(name)[0]
    return inside if not (root / split).is_dir() and (inside / split).is_dir() else root
