# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""MIMIC-CXR-JPG: labels from reports by two labelers, official split."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from monai_afire.apps.readers.chexpert import CHEXPERT_FINDINGS, LABEL_VALUES, is_abnormal
from monai_afire.apps.readers.images import existing_files
from monai_afire.apps.readers.label_reader import LabeledImage, LabeledSet, LabelReader, option
from monai_afire.apps.readers.label_tables import find_label_file, find_optional_file, read_table
from monai_afire.utils.text import counted

_SECTIONS = {"train": "training", "validate": "validation", "test": "test"}
_LATERAL = {"LATERAL", "LL", "RL", "XTABLE LATERAL"}


@dataclass
class MIMICReader(LabelReader):
    """
    Labels of 14 observations of each study, in CheXpert's order: 1, 0, -1 (uncertain), null (not mentioned).

    From https://physionet.org/content/mimic-cxr-jpg ::

        ROOT/mimic-cxr-2.0.0-chexpert.csv.gz (or -negbio), -split.csv.gz
        ROOT/mimic-cxr-2.0.0-metadata.csv.gz      if there: views
        ROOT/files/p10/p10000032/s50414267/*.jpg ...

    For pre-training AFiRe on normal images add --normal_only --frontal_only.
    """

    labeler: str = option(
        "chexpert", "which labels: mimic-cxr-2.0.0-LABELER.csv", ("chexpert", "negbio")
    )

    title = "MIMIC-CXR-JPG"
    reference = "Johnson et al., MIMIC-CXR-JPG, arXiv:1901.07042"
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        studies = self._study_labels(labels)
        path = find_label_file(
            labels, ["mimic-cxr-*-split.csv"], "list of images with the official split"
        )
        keys = ["dicom_id", "study_id", "subject_id"]
        table = read_table(path, [*keys, "split"], filled=keys, unique="dicom_id")
        sections = table.values("split", _SECTIONS)
        views = _views(labels)
        base = root / "files" if (root / "files").is_dir() else root
        rows = list(zip(*map(table.column, keys), sections, strict=True))
        names = [
            f"p{subject[:2]}/p{subject}/s{study}/{dicom}.jpg" for dicom, study, subject, _ in rows
        ]
        files = existing_files([os.path.join(base, *name.split("/")) for name in names])
        nothing: list[int | None] = [None] * len(CHEXPERT_FINDINGS)
        images = []
        for name, file, (dicom, study, subject, section) in zip(names, files, rows, strict=True):
            values, view = studies.get(study, nothing), views.get(dicom, "unknown")
            item = {
                "label": values,
                "abnormal": is_abnormal(values),
                "patient_id": subject,
                "view": view,
            }
            images.append(LabeledImage(name, file, item, section if official else None))
        unlabeled = sum(study not in studies for study in table.column("study_id"))
        notes = [f"without labels: {counted(unlabeled, 'image')}"] if unlabeled else []
        if not views:
            notes.append("views unknown: mimic-cxr-2.0.0-metadata.csv.gz is not there")
        return LabeledSet(
            images, {"finding_names": list(CHEXPERT_FINDINGS), "label_values": LABEL_VALUES}, notes
        )

    def _study_labels(self, labels: Path) -> dict[str, list[int | None]]:
        path = find_label_file(
            labels, [f"mimic-cxr-*-{self.labeler}.csv"], f"labels by {self.labeler}"
        )
        columns = ["subject_id", "study_id", *CHEXPERT_FINDINGS]
        table = read_table(path, columns, filled=["study_id"], unique="study_id")
        return dict(zip(table.column("study_id"), table.findings(CHEXPERT_FINDINGS), strict=True))


def _views(labels: Path) -> dict[str, str]:
    """View of each image; empty without the metadata file."""
    path = find_optional_file(labels, ["mimic-cxr-*-metadata.csv"], "metadata")
    if path is None:
        return {}
    table = read_table(path, ["dicom_id", "ViewPosition"])
    views = (
        "lateral" if view in _LATERAL else view or "unknown"
        for view in table.column("ViewPosition")
    )
    return dict(zip(table.column("dicom_id"), views, strict=True))
