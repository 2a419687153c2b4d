# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""RSNA Pneumonia: boxes of lung opacities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from monai_afire.apps.readers.images import files_by_name, read_dicom_headers
from monai_afire.apps.readers.label_reader import (
    UNCERTAIN,
    LabeledImage,
    LabeledSet,
    LabelReader,
    option,
)
from monai_afire.apps.readers.label_tables import (
    Table,
    find_label_file,
    find_optional_file,
    read_json_array,
    read_table,
)
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.utils.text import counted

_IMAGE_SIZE = 1024
_BOX_SIDES = ("x", "y", "width", "height")
_CLASSES = {"Normal": 0, "No Lung Opacity / Not Normal": 1, "Lung Opacity": 2}
_CLASS_NAMES = ("normal", "not normal, no lung opacity", "lung opacity")
_MAPPING = "pneumonia-challenge-dataset-mappings_2018.json"


@dataclass
class RSNAReader(LabelReader):
    """
    Lung opacity or none, with "boxes" [x, y, width, height] in pixels of the 1024 x 1024 image, none for the others.

    From https://www.kaggle.com/c/rsna-pneumonia-detection-challenge ::

        ROOT/stage_2_train_labels.csv
        ROOT/stage_2_detailed_class_info.csv   if there: which images are normal
        ROOT/stage_2_train_images/*.dcm        the images, in any subfolders; converted ones, too
        ROOT/pneumonia-challenge-dataset-mappings_2018.json
                                               if there (from RSNA's page of the challenge): patients
    """

    three_classes: bool = option(
        False, "label 0 normal, 1 not normal but no opacity, 2 opacity; needs the class file"
    )

    title = "RSNA Pneumonia"
    reference = "Shih et al., Radiology: Artificial Intelligence 1 (2019)"

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        path = find_label_file(labels, ["stage_2_train_labels.csv"], "labels and boxes")
        boxes = _boxes(
            read_table(path, ["patientId", *_BOX_SIDES, "Target"], filled=["patientId", "Target"])
        )
        classes = self._detailed_classes(labels, boxes)
        patients = _patients(labels)
        files = files_by_name(root, list(boxes))
        images = []
        for name, file, (_, view) in zip(boxes, files, read_dicom_headers(files), strict=True):
            item = {
                "label": classes[name] if self.three_classes else int(bool(boxes[name])),
                "abnormal": 1 if boxes[name] else min(classes.get(name, UNCERTAIN), 1),
                "patient_id": patients.get(name, name),
                "view": view or "frontal",
                "boxes": boxes[name],
            }
            images.append(LabeledImage(name, file, item))
        notes = (
            []
            if classes
            else ["normal images unknown: stage_2_detailed_class_info.csv is not there"]
        )
        notes += [] if patients else [f"each image counts as one patient: {_MAPPING} is not there"]
        names = _CLASS_NAMES if self.three_classes else ("no lung opacity", "lung opacity")
        header = {
            "labels": {str(number): name for number, name in enumerate(names)},
            "box_mode": "xywh",
        }
        return LabeledSet(images, {**header, "box_image_size": [_IMAGE_SIZE, _IMAGE_SIZE]}, notes)

    def _detailed_classes(self, labels: Path, boxes: Mapping[str, list]) -> dict[str, int]:
        """Number of the class of each image; empty without the file."""
        find = find_label_file if self.three_classes else find_optional_file
        path = find(labels, ["stage_2_detailed_class_info.csv"], "detailed classes")
        if path is None:
            return {}
        table = read_table(path, ["patientId", "class"])
        cells = table.cells
        classes = dict(zip(cells["patientId"], table.values("class", _CLASSES), strict=True))
        opacity = cells["patientId"].map({name: bool(marks) for name, marks in boxes.items()})
        wrong = cells[opacity.notna() & (opacity != (cells["class"] == "Lung Opacity"))]
        shown = (wrong["patientId"] + ": " + wrong["class"]).items()
        table.refuse(
            shown,
            "classes that contradict Target in stage_2_train_labels.csv",
            "download both files",
        )
        if absent := [name for name in boxes if name not in classes]:
            raise DatalistError(
                f"{path}: lacks {counted(len(absent), 'image')}, such as {absent[0]}; download both files again."
            )
        return classes


def _boxes(table: Table) -> dict[str, list[list[float]]]:
    """Boxes of each image, none for those without opacity."""
    names = table.cells["patientId"]
    targets = pd.Series(table.values("Target", {"0": False, "1": True}), index=names.index)
    others = names.duplicated() & (targets.groupby(names).transform("nunique") > 1)
    marked = ~targets & (table.cells[list(_BOX_SIDES)] != "").any(axis=1)
    wrong = {
        **(names[others] + " with another Target"),
        **dict.fromkeys(names.index[marked], "a box with Target 0"),
    }
    table.refuse(sorted(wrong.items()), "wrong rows", "download it again")
    boxes: dict[str, list[list[float]]] = {name: [] for name in names}
    listed = (
        Table(table.path, table.cells[targets]).boxes(_BOX_SIDES, _IMAGE_SIZE)
        if targets.any()
        else []
    )
    for name, box in zip(names[targets], listed, strict=True):
        boxes[name].append(box)
    return boxes


def _patients(labels: Path) -> dict[str, str]:
    """NIH patient of each image, by RSNA's mapping; empty without it."""
    path = find_optional_file(labels, [_MAPPING], "mapping to NIH ChestX-ray14")
    if path is None:
        return {}
    return {
        str(entry["subset_img_id"]): str(entry["img_id"])[:8]
        for entry in read_json_array(path, ["img_id", "subset_img_id"])
    }
