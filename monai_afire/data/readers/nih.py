# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""NIH ChestX-ray14: official labels, boxes and split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.data.readers.base import LabelledImage, LabelledSet, LabelReader
from monai_afire.data.readers.images import files_by_name
from monai_afire.data.readers.tables import Table, find_label_file, read_name_list, read_table
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
_BOX_SIDES = ("Bbox [x", "y", "w", "h]")  # the header's brackets are not quoted: four columns bear these names
_IMAGE_SIZE = 1024  # of the published images


@dataclass
class NIHReader(LabelReader):
    """Labels of 14 findings from reports; "label" is a list of 0 and 1, "abnormal" is 0 for "No Finding"."""

    title = "NIH ChestX-ray14"
    layout = """\
https://nihcc.app.box.com/v/ChestXray-NIHCC
  ROOT/Data_Entry_2017_v2020.csv (or Data_Entry_2017.csv)
  ROOT/train_val_list.txt, test_list.txt    the official split
  ROOT/BBox_List_2017.csv                   if there: boxes
  ROOT/images_001/images/*.png ...          the images, in any subfolders
The label files may be compressed with gzip, or lie elsewhere (--labels)."""
    reference = "Wang et al., ChestX-ray8, CVPR 2017; data provider: NIH Clinical Center"
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabelledSet:
        """See :meth:`LabelReader.read`."""
        path = find_label_file(labels, ["Data_Entry_2017_v2020*.csv", "Data_Entry_2017*.csv"], "labels")
        assert path is not None
        table = read_table(path, ["Image Index", "Finding Labels", "Patient ID", "View Position"])
        table.require_cells("Image Index", "Finding Labels", "Patient ID")
        table.require_unique("Image Index")
        names = table.column("Image Index")
        findings = _findings(table)
        patients = _patients(table)
        views = [view or "unknown" for view in table.column("View Position")]
        sections = _official_sections(labels, table) if official else [None] * len(table)
        images = []
        for name, file, finding, patient, view, section in zip(
            names, files_by_name(root, names), findings, patients, views, sections, strict=True
        ):
            item = {"label": finding, "abnormal": int(any(finding)), "patient_id": patient, "view": view}
            images.append(LabelledImage(name, file, item, section))
        header = {"finding_names": list(NIH_FINDINGS)}
        boxes = find_label_file(labels, ["BBox_List_2017*.csv"], "boxes", required=False)
        if boxes is None:
            return LabelledSet(images, header, ["no boxes: BBox_List_2017.csv is not there"])
        _add_boxes(images, boxes)
        return LabelledSet(images, {**header, "box_mode": "xywh", "box_image_size": [_IMAGE_SIZE, _IMAGE_SIZE]})


def _findings(table: Table) -> list[list[int]]:
    """0 or 1 for each finding of each image."""
    parsed: dict[str, list[int]] = {}
    wrong = []
    cells = table.column("Finding Labels")
    for row, cell in enumerate(cells):
        if cell not in parsed:
            present = cell.split("|")
            if not set(present) <= {*NIH_FINDINGS, _NO_FINDING} or (_NO_FINDING in present and len(present) > 1):
                wrong.append((row, repr(cell)))
            parsed[cell] = [int(name in present) for name in NIH_FINDINGS]
    known = ", ".join(NIH_FINDINGS)
    table.refuse(wrong, "wrong Finding Labels", f"expected '{_NO_FINDING}', or some of {known}, joined with '|'")
    return [parsed[cell] for cell in cells]


def _patients(table: Table) -> list[str]:
    """Patients in eight digits, as in the images' names, which must agree."""
    cells = table.column("Patient ID")
    patients = [cell.zfill(8) for cell in cells]
    names = table.column("Image Index")
    wrong = [(row, f"{names[row]}, {cells[row]}") for row, p in enumerate(patients) if not names[row].startswith(p)]
    table.refuse(wrong, "Patient ID and Image Index are of different patients", "download the file again")
    return patients


def _official_sections(labels: Path, table: Table) -> list[str | None]:
    """Section of each image; the official lists have no validation section."""
    sections: dict[str, str] = {}
    for pattern, section in (("train_val_list*.txt", "training"), ("test_list*.txt", "test")):
        path = find_label_file(labels, [pattern], "official split; without it: --split random")
        assert path is not None
        names = read_name_list(path)
        if twice := [name for name in names if name in sections]:
            raise DatalistError(f"{path}: lists images of the other list, or twice: {first_few(twice)}; download both.")
        sections.update(dict.fromkeys(names, section))
    images = table.column("Image Index")
    unlisted = [(row, name) for row, name in enumerate(images) if name not in sections]
    table.refuse(unlisted, "images that are in neither list of the official split", "download it, or --split random")
    return [sections[name] for name in images]


def _add_boxes(images: list[LabelledImage], path: Path) -> None:
    table = read_table(path, ["Image Index", "Finding Label", *_BOX_SIDES])
    by_name = {image.name: image for image in images}
    names = table.column("Image Index")
    table.refuse(((n, name) for n, name in enumerate(names) if name not in by_name), "unknown images", "download both")
    # the box list has another name for it than the labels
    spelling = {**{name: name for name in NIH_FINDINGS}, "Infiltrate": "Infiltration"}
    findings = table.values("Finding Label", spelling)
    boxes = list(zip(*(table.numbers(side) for side in _BOX_SIDES), strict=True))
    outside = [
        (row, f"{x:g}, {y:g}, {w:g}, {h:g}")
        for row, (x, y, w, h) in enumerate(boxes)
        if min(x, y) < 0 or min(w, h) <= 0 or max(x + w, y + h) > _IMAGE_SIZE
    ]
    table.refuse(outside, f"boxes outside the {_IMAGE_SIZE} x {_IMAGE_SIZE} image", "correct x, y, width, height")
    for name, finding, box in zip(names, findings, boxes, strict=True):
        item = by_name[name].item
        item.setdefault("boxes", []).append(list(box))
        item.setdefault("box_findings", []).append(finding)
