# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ChildCXR: the paediatric radiographs of Kermany et al., sorted into folders."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from monai_afire.apps.readers.label_reader import LabeledImage, LabeledSet, LabelReader
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.utils.text import first_few

_CLASSES = {"normal": 0, "pneumonia": 1}
# the folder "val" of the Kaggle edition holds 16 images that were taken from "train"; as few are no validation section
_SECTIONS = {"train": "training", "val": "training", "test": "test"}
_PATIENT = re.compile(
    r"(?P<kaggle>person\d+_(?:bacteria|virus))_\d+|(?P<normal>(?:NORMAL2-)?IM-\d+)-\d+|"
    r"(?P<mendeley>(?:NORMAL|BACTERIA|VIRUS)-\d+)-\d+",
    re.IGNORECASE,
)


@dataclass
class ChildCXRReader(LabelReader):
    """
    Normal or pneumonia, by the name of the folder; the patient is in the file's name.

    From https://data.mendeley.com/datasets/rscbjbr9sj (ChestXRay), or its edition on Kaggle (chest-xray-pneumonia) ::

        ROOT/train/NORMAL/*.jpeg, ROOT/train/PNEUMONIA/*.jpeg
        ROOT/test/NORMAL/*.jpeg,  ROOT/test/PNEUMONIA/*.jpeg

    ROOT may be a folder around these; val, of the Kaggle edition, counts as train; second copies are left out.
    """

    title = "ChildCXR"
    reference = "Kermany et al., Cell 172 (2018)"
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        files = _placed_files(root)
        images = []
        unknown = []
        for (section, label, name), relative in files.items():
            match = _PATIENT.match(name)
            if match is None:
                unknown.append(name)
            patient = match.group(match.lastgroup or 0) if match else os.path.splitext(name)[0]
            item = {"label": label, "abnormal": label, "patient_id": patient, "view": "frontal"}
            file = os.path.join(root, *PurePosixPath(relative).parts)
            images.append(LabeledImage(relative, file, item, section if official else None))
        notes = [f"patient unknown, counted as one each: {first_few(unknown)}"] if unknown else []
        return LabeledSet(images, {"labels": {"0": "normal", "1": "pneumonia"}}, notes)


def _placed_files(root: Path) -> dict[tuple[str, int, str], str]:
    """Path of each image by section, class and name; of several copies the one nearest to the root."""
    placed: dict[tuple[str, int, str], str] = {}
    for relative in sorted(scan_radiographs(root), key=lambda path: (path.count("/"), path)):
        parts = PurePosixPath(relative).parts
        place = [part.lower() for part in parts[-3:-1]]
        if len(place) == 2 and place[0] in _SECTIONS and place[1] in _CLASSES:
            placed.setdefault((_SECTIONS[place[0]], _CLASSES[place[1]], parts[-1]), relative)
    for section in ("training", "test"):
        if not any(key[0] == section for key in placed):
            folder = "train" if section == "training" else "test"
            text = f"no images in {folder}/NORMAL or {folder}/PNEUMONIA"
            raise DatalistError(f"{root}: {text}; set --root to where train and test lie.")
    return dict(sorted(placed.items(), key=lambda pair: pair[1]))
