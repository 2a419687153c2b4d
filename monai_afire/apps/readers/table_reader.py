# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The user's own label table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.preprocessing import MultiLabelBinarizer

from monai_afire.apps.readers.images import existing_files
from monai_afire.apps.readers.label_reader import UNCERTAIN, LabeledImage, LabeledSet, LabelReader, option
from monai_afire.apps.readers.label_tables import Table, read_table
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.data.datalist.patients import file_patients

_SECTIONS = {
    **dict.fromkeys(("train", "training"), "training"),
    **dict.fromkeys(("val", "valid", "validate", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_DESCRIBED = ("view", "scanner", "sex", "age", "manufacturer")  # columns that items keep, if they are there


@dataclass
class TableReader(LabelReader):
    """
    Any CSV table with a row for each image.

    Files::

        ROOT/labels.csv with the columns image, label, patient_id, split, and if there: view, sex, age, manufacturer
    """

    table: str = option("labels.csv", "the table; a relative path starts from the folder of the label files")
    image_column: str = option("image", "column of the image, a path relative to ROOT")
    label_columns: tuple[str, ...] = option(("label",), "column of the class or finding, or columns of the findings")
    num_classes: int = option(0, "classes of a single column of numbers from 0; 0: its 0 and 1 are one finding")
    separator: str = option("", "text between the findings that a cell of a single column names, such as '|'")
    no_finding: str = option("No Finding", "what a cell without a finding holds, beside an empty one")
    patient_column: str = option("patient_id", "column of the patient; without it, the file's name is searched for one")
    split_column: str = option("split", "column of the section: train, val or test; without it: by fractions")

    title = "label table"
    reference = ""
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        if self.separator and len(self.label_columns) > 1:
            raise DatalistError("--separator is for one column that names the findings; give one of --label_columns.")
        table = read_table(labels / self.table, [self.image_column, *self.label_columns])
        optional = [name for name in (self.patient_column, self.split_column) if name in table.cells]
        may_be_empty = self.separator or len(self.label_columns) > 1
        table.require_cells(self.image_column, *optional, *(() if may_be_empty else self.label_columns))
        table.require_unique(self.image_column)
        names = table.column(self.image_column)
        files = existing_files([os.path.join(root, name) for name in names])
        header, label_rows = self._labels(table)
        patients, notes = self._patients(table, files)
        sections = self._sections(table) if official else [None] * len(table)
        images = []
        groups = table.described(**{name: name for name in _DESCRIBED})
        rows = zip(names, files, label_rows, patients, groups, sections, strict=True)
        for name, file, label, patient, group, section in rows:
            item = {"label": label, "abnormal": _abnormal(label), "patient_id": patient, "view": "unknown", **group}
            images.append(LabeledImage(name, file, item, section))
        return LabeledSet(images, header, notes)

    def _patients(self, table: Table, files: Sequence[str | None]) -> tuple[list[str], list[str]]:
        """Patient of each image, and a note where the table has no column of patients."""
        if self.patient_column in table.cells:
            return table.column(self.patient_column), []
        names = table.column(self.image_column)
        patients = file_patients([str(file) for file in files], names)
        unknown = sum(patient == name for patient, name in zip(patients, names, strict=True))
        text = f"no column {self.patient_column!r}: patients are taken from the names and DICOM headers of the files"
        absent = f", which do not give those of {unknown:,} images: each of these counts as another patient"
        return patients, [text + absent * (unknown > 0)]

    def _labels(self, table: Table) -> tuple[dict[str, Any], list[Any]]:
        """What the datalist says of the labels, and each image's."""
        if self.separator:
            return self._named_findings(table)
        if len(self.label_columns) > 1 or not self.num_classes:
            return {"finding_names": list(self.label_columns)}, self._finding_labels(table)
        if self.num_classes < 2:
            raise DatalistError(f"num_classes is {self.num_classes}; there must be two at least, or 0 for a finding.")
        accepted = {str(number): number for number in range(self.num_classes)}
        header = {"labels": {str(number): f"class {number}" for number in range(self.num_classes)}}
        return header, table.values(self.label_columns[0], accepted)

    def _named_findings(self, table: Table) -> tuple[dict[str, Any], list[list[int]]]:
        """Findings that the cells name, in alphabetical order."""
        cells = [cell.split(self.separator) for cell in table.column(self.label_columns[0])]
        binarizer = MultiLabelBinarizer()
        present = binarizer.fit_transform([{name.strip() for name in cell} - {"", self.no_finding} for cell in cells])
        if not present.any():
            text = f"no cell of {self.label_columns[0]!r} names a finding; check the column."
            raise DatalistError(f"{self.table}: {text}")
        return {"finding_names": binarizer.classes_.tolist()}, present.tolist()

    def _finding_labels(self, table: Table) -> list[list[int | None]]:
        try:
            return table.findings(self.label_columns)
        except DatalistError as error:
            if len(self.label_columns) > 1:
                raise
            remedy = "For classes numbered from 0 give --num_classes, for names of findings --separator"
            raise DatalistError(f"{error} {remedy}.") from error

    def _sections(self, table: Table) -> list[str | None]:
        if self.split_column in table.cells:
            accepted = {**_SECTIONS, **{name.capitalize(): section for name, section in _SECTIONS.items()}}
            return [*table.values(self.split_column, accepted)]
        if self.split_column != TableReader.split_column:
            found = ", ".join(table.cells)
            raise DatalistError(f"{self.table}: has no column {self.split_column!r}; the columns are {found}.")
        return [None] * len(table)


def _abnormal(label: int | list[int | None]) -> int:
    abnormal = abnormal_label({"label": label})
    return UNCERTAIN if abnormal is None else abnormal
