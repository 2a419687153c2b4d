# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Shenzhen: tuberculosis, by the suffix of the file's name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from monai_afire.apps.readers.images import stem_of
from monai_afire.apps.readers.label_reader import LabeledImage, LabeledSet, LabelReader
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs

_NAME = re.compile(r"(CHNCXR_\d{4})_([01])", re.IGNORECASE)
_PUBLISHED = 662


@dataclass
class ShenzhenReader(LabelReader):
    """
    Normal or tuberculosis; one image of each patient.

    From https://lhncbc.nlm.nih.gov/LHC-downloads/downloads.html (Shenzhen Hospital X-ray set) ::

        ROOT/CXR_png/CHNCXR_0001_0.png ...   _0: normal, _1: tuberculosis; in any subfolders

    Other files, such as lung masks, are left out.
    """

    title = "Shenzhen"
    reference = "Jaeger et al., Quantitative Imaging in Medicine and Surgery 4 (2014)"

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        images: dict[str, LabeledImage] = {}
        for relative in scan_radiographs(root):
            match = _NAME.fullmatch(stem_of(relative))
            if match is None:
                continue
            patient, label = match.group(1).upper(), int(match.group(2))
            if patient in images:
                both = f"{images[patient].name}, {relative}"
                raise DatalistError(
                    f"{root}: {patient} is there twice: {both}; set --root to one copy."
                )
            item = {"label": label, "abnormal": label, "patient_id": patient, "view": "frontal"}
            images[patient] = LabeledImage(
                relative, os.path.join(root, *PurePosixPath(relative).parts), item
            )
        if not images:
            raise DatalistError(f"{root}: no images such as CHNCXR_0001_0.png; check --root.")
        notes = (
            []
            if len(images) == _PUBLISHED
            else [f"{len(images)} of the {_PUBLISHED} published images are there"]
        )
        return LabeledSet(
            list(images.values()), {"labels": {"0": "normal", "1": "tuberculosis"}}, notes
        )
