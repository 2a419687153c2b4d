# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ChestX-Det: boxes and polygons of 13 findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from monai_afire.apps.readers.images import files_by_name
from monai_afire.apps.readers.label_reader import LabeledImage, LabeledSet, LabelReader
from monai_afire.apps.readers.label_tables import find_label_file, read_json_array
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.utils.text import first_few

CHESTX_DET_FINDINGS = (
    "Atelectasis",
    "Calcification",
    "Cardiomegaly",
    "Consolidation",
    "Diffuse Nodule",
    "Effusion",
    "Emphysema",
    "Fibrosis",
    "Fracture",
    "Mass",
    "Nodule",
    "Pleural Thickening",
    "Pneumothorax",
)
_SIZE = 1024
_KEYS = ("file_name", "syms", "boxes", "polygons")


@dataclass
class ChestXDetReader(LabelReader):
    """
    Findings marked by radiologists.

    From https://github.com/Deepwise-AILab/ChestX-Det-Dataset ::

        ROOT/ChestX_Det_train.json, ChestX_Det_test.json
        ROOT/train/*.png, ROOT/test/*.png          the images, in any subfolders

    --mask_dir draws the union of all findings as PNG, 1024 x 1024.
    """

    title = "ChestX-Det"
    reference = "Lian et al., IEEE Transactions on Medical Imaging 40 (2021)"
    has_split = True
    has_masks = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        entries: list[tuple[dict[str, Any], str]] = []
        for name, section in (
            ("ChestX_Det_train.json", "training"),
            ("ChestX_Det_test.json", "test"),
        ):
            path = find_label_file(labels, [name], "annotations")
            marks = read_json_array(path, _KEYS)
            _check(marks, path)
            entries += [(mark, section) for mark in marks]
        names = [str(entry["file_name"]) for entry, _ in entries]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise DatalistError(
                f"{labels}: images that are annotated twice: {first_few(twice)}; download the files."
            )
        images = [
            LabeledImage(
                name,
                file,
                _item(entry),
                section if official else None,
                partial(_draw, entry["polygons"]),
            )
            for name, file, (entry, section) in zip(
                names, files_by_name(root, names), entries, strict=True
            )
        ]
        header = {
            "finding_names": list(CHESTX_DET_FINDINGS),
            "box_mode": "xywh",
            "box_image_size": [_SIZE, _SIZE],
        }
        return LabeledSet(
            images, header, ["each image counts as one patient: the set does not tell its patients"]
        )


def _check(marks: Sequence[Mapping[str, Any]], path: Path) -> None:
    wrong = [
        f"item {number} ({fault})" for number, mark in enumerate(marks) if (fault := _fault(mark))
    ]
    if wrong:
        raise DatalistError(
            f"{path}: wrong annotations in {first_few(wrong)}; download the file again."
        )


def _fault(mark: Mapping[str, Any]) -> str:
    """What is wrong with an annotation, "" if nothing is."""
    if not all(isinstance(mark[key], list) for key in _KEYS[1:]):
        return "syms, boxes and polygons are not arrays"
    if unknown := set(map(str, mark["syms"])) - set(CHESTX_DET_FINDINGS):
        return f"unknown finding {sorted(unknown)[0]!r}"
    if not len(mark["syms"]) == len(mark["boxes"]) == len(mark["polygons"]):
        return "findings, boxes and polygons differ in number"
    try:
        boxes = [[float(side) for side in box] for box in mark["boxes"]]
        points = [
            [float(side) for side in point] for polygon in mark["polygons"] for point in polygon
        ]
    except (TypeError, ValueError):
        return "a coordinate is not a number"
    if not all(len(box) == 4 and box[0] <= box[2] and box[1] <= box[3] for box in boxes):
        return "a box is not x1, y1, x2, y2"
    return "" if all(len(point) == 2 for point in points) else "a point of a polygon is not x, y"


def _item(mark: Mapping[str, Any]) -> dict[str, Any]:
    name = str(mark["file_name"])
    return {
        "label": [int(finding in mark["syms"]) for finding in CHESTX_DET_FINDINGS],
        "abnormal": int(bool(mark["syms"])),
        "patient_id": name.rsplit(".", 1)[0],
        "view": "frontal",
        "boxes": [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in mark["boxes"]],
        "box_findings": list(mark["syms"]),
        "polygons": mark["polygons"],
    }


def _draw(polygons: Sequence[Sequence[Sequence[float]]]) -> np.ndarray:
    picture = Image.new("L", (_SIZE, _SIZE))
    pencil = ImageDraw.Draw(picture)
    for polygon in polygons:
        points = [(float(x), float(y)) for x, y in polygon]
        if len(points) > 1:
            pencil.polygon(points, fill=1, outline=1)
    return np.asarray(picture)
