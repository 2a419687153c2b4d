# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The user's own label table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.data.datalist.patients import patient_of
from monai_afire.data.readers.base import UNCERTAIN, LabelledImage, LabelledSet, LabelReader, option
from monai_afire.data.readers.images import existing_files
from monai_afire.data.readers.tables import Table, read_table

__all__ = ["TableReader"]

_SECTIONS = {
    **dict.fromkeys(("train", "training"), "training"),
    **dict.fromkeys(("val", "valid", "validate", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_FINDING_VALUES: dict[str, int | None] = {
    **{"1": 1, "0": 0, "-1": -1, "": None},
    **{"1.0": 1, "0.0": 0, "-1.0": -1},
}


@dataclass
class TableReader(LabelReader):
    """
    Any CSV table with a row for each image.

    One label column holds class numbers; several hold 1, 0, -1 (uncertain) or nothing, as CheXpert's do. Class 0, or
    no finding, is normal.
    """

    table: str = option("labels.csv", "the table; a relative path starts from the folder of the label files")
    image_column: str = option("image", "column of the image, a path relative to ROOT")
    label_columns: tuple[str, ...] = option(("label",), "column of the class, or columns of the findings")
    num_classes: int = option(2, "number of classes of a single label column")
    patient_column: str = option("patient_id", "column of the patient; if it is not there, the file's name tells")
    split_column: str = option("split", "column of the section: train, val or test; if it is not there: by fractions")

    title = "label table"
    layout = """\
  ROOT/labels.csv with the columns image, label, patient_id, split"""
    reference = ""
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabelledSet:
        """See :meth:`LabelReader.read`."""
        table = read_table(labels / self.table, [self.image_column, *self.label_columns])
        single = len(self.label_columns) == 1
        optional = [name for name in (self.patient_column, self.split_column) if name in table.names]
        table.require_cells(self.image_column, *optional, *(self.label_columns if single else ()))
        table.require_unique(self.image_column)
        names = table.column(self.image_column)
        in_table = self.patient_column in table.names
        patients = table.column(self.patient_column) if in_table else [patient_of(name) for name in names]
        values = self._class_labels(table) if single else self._finding_labels(table)
        sections = self._sections(table) if official else [None] * len(table)
        files = existing_files([os.path.join(root, name) for name in names])
        images = []
        for row, (name, file) in enumerate(zip(names, files, strict=True)):
            item = {"label": values[row], "abnormal": _abnormal(values[row]), "patient_id": patients[row]}
            images.append(LabelledImage(name, file, {**item, "view": "unknown"}, sections[row]))
        notes = (
            [] if in_table else [f"no column {self.patient_column!r}: patients are taken from the names of the files"]
        )
        return LabelledSet(images, self._header(), notes)

    def _header(self) -> dict[str, Any]:
        if len(self.label_columns) > 1:
            return {"finding_names": list(self.label_columns)}
        return {"labels": {str(number): f"class {number}" for number in range(self.num_classes)}}

    def _class_labels(self, table: Table) -> list[int]:
        if self.num_classes < 2:
            raise DatalistError(f"num_classes is {self.num_classes}; there must be two at least.")
        accepted = {str(number): number for number in range(self.num_classes)}
        return table.values(self.label_columns[0], accepted)

    def _finding_labels(self, table: Table) -> list[list[int | None]]:
        columns = [table.values(name, _FINDING_VALUES) for name in self.label_columns]
        return [list(values) for values in zip(*columns, strict=True)]

    def _sections(self, table: Table) -> list[str | None]:
        if self.split_column not in table.names:
            return [None] * len(table)
        accepted = {**_SECTIONS, **{name.capitalize(): section for name, section in _SECTIONS.items()}}
        return [*table.values(self.split_column, accepted)]


def _abnormal(label: int | list[int | None]) -> int:
    if isinstance(label, int):
        return int(label > 0)
    if 1 in label:
        return 1
    return UNCERTAIN if UNCERTAIN in label or None in label else 0
