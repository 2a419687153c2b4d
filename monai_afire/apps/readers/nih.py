# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""NIH ChestX-ray14: official labels, boxes and split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from monai_afire.apps.readers.images import files_by_name
from monai_afire.apps.readers.label_reader import LabeledImage, LabeledSet, LabelReader
from monai_afire.apps.readers.label_tables import (
    Table,
    find_label_file,
    find_optional_file,
    read_name_list,
    read_table,
)
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.utils.text import first_few

NIH_FINDINGS = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)

_NO_FINDING = "No Finding"
_BOX_SIDES = (
    "Bbox [x",
    "y",
    "w",
    "h]",
)  # the header's brackets are not quoted: four columns bear these names
_IMAGE_SIZE = 1024  # of the published images


@dataclass
class NIHReader(LabelReader):
    """
    Labels of 14 findings from reports; "label" is a list of 0 and 1, "abnormal" is 0 for "No Finding".

    From https://nihcc.app.box.com/v/ChestXray-NIHCC ::

        ROOT/Data_Entry_2017_v2020.csv (or Data_Entry_2017.csv)
        ROOT/train_val_list.txt, test_list.txt    the official split
        ROOT/BBox_List_2017.csv                   if there: boxes
        ROOT/images_001/images/*.png ...          the images, in any subfolders

    The label files may be compressed with gzip, or lie elsewhere (--labels).
    """

    title = "NIH ChestX-ray14"
    reference = "Wang et al., ChestX-ray8, CVPR 2017; data provider: NIH Clinical Center"
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        path = find_label_file(
            labels, ["Data_Entry_2017_v2020*.csv", "Data_Entry_2017*.csv"], "labels"
        )
        filled = ["Image Index", "Finding Labels", "Patient ID"]
        table = read_table(path, [*filled, "View Position"], filled, unique="Image Index")
        names, views = table.column("Image Index"), table.column("View Position")
        findings, patients = _findings(table), _patients(table)
        sections = _official_sections(labels, table) if official else [None] * len(table)
        images = []
        groups = table.described(sex="Patient Gender", age="Patient Age")
        for name, file, finding, patient, view, group, section in zip(
            names,
            files_by_name(root, names),
            findings,
            patients,
            views,
            groups,
            sections,
            strict=True,
        ):
            item = {
                "label": finding,
                "abnormal": int(any(finding)),
                "patient_id": patient,
                "view": view or "unknown",
            }
            item |= group
            images.append(LabeledImage(name, file, item, section))
        header = {"finding_names": list(NIH_FINDINGS)}
        boxes = find_optional_file(labels, ["BBox_List_2017*.csv"], "boxes")
        if boxes is None:
            return LabeledSet(images, header, ["no boxes: BBox_List_2017.csv is not there"])
        _add_boxes(images, boxes)
        return LabeledSet(
            images, {**header, "box_mode": "xywh", "box_image_size": [_IMAGE_SIZE, _IMAGE_SIZE]}
        )


def _findings(table: Table) -> list[list[int]]:
    """0 or 1 for each finding of each image."""
    cells = table.cells["Finding Labels"]
    named = cells.str.get_dummies("|")
    unknown = named.drop(columns=[*NIH_FINDINGS, _NO_FINDING], errors="ignore").any(axis=1)
    contradictory = named.get(_NO_FINDING, 0) * named.sum(axis=1) > 1
    wrong = cells[unknown | contradictory].map(repr)
    known = ", ".join(NIH_FINDINGS)
    remedy = f"expected '{_NO_FINDING}', or some of {known}, joined with '|'"
    table.refuse(wrong.items(), "wrong Finding Labels", remedy)
    return named.reindex(columns=NIH_FINDINGS, fill_value=0).to_numpy().tolist()


def _patients(table: Table) -> list[str]:
    """Patients in eight digits, as in the images' names, which must agree."""
    cells, names = table.cells["Patient ID"], table.cells["Image Index"]
    patients = cells.str.zfill(8)
    wrong = (names + ", " + cells)[names.str[:8] != patients]
    table.refuse(
        wrong.items(),
        "Patient ID and Image Index are of different patients",
        "download the file again",
    )
    return patients.tolist()


def _official_sections(labels: Path, table: Table) -> list[str | None]:
    """Section of each image; the official lists have no validation section."""
    sections: dict[str, str] = {}
    for pattern, section in (("train_val_list*.txt", "training"), ("test_list*.txt", "test")):
        path = find_label_file(labels, [pattern], "official split; without it: --split random")
        names = read_name_list(path)
        if twice := [name for name in names if name in sections]:
            raise DatalistError(
                f"{path}: lists images of the other list, or twice: {first_few(twice)}; download both."
            )
        sections.update(dict.fromkeys(names, section))
    images = table.cells["Image Index"]
    unlisted = images[~images.isin(sections.keys())].items()
    table.refuse(
        unlisted,
        "images that are in neither list of the official split",
        "download it, or --split random",
    )
    return images.map(sections).tolist()


def _add_boxes(images: list[LabeledImage], path: Path) -> None:
    table = read_table(path, ["Image Index", "Finding Label", *_BOX_SIDES])
    items = {image.name: image.item for image in images}
    names = table.cells["Image Index"]
    table.refuse(names[~names.isin(items.keys())].items(), "unknown images", "download both")
    # the box list has another name for it than the labels
    spelling = {**{name: name for name in NIH_FINDINGS}, "Infiltrate": "Infiltration"}
    findings = table.values("Finding Label", spelling)
    for name, finding, box in zip(
        names, findings, table.boxes(_BOX_SIDES, _IMAGE_SIZE), strict=True
    ):
        items[name].setdefault("boxes", []).append(box)
        items[name].setdefault("box_findings", []).append(finding)
