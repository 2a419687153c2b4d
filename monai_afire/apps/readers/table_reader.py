# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The user's own label table."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.preprocessing import MultiLabelBinarizer

from monai_afire.apps.readers.images import existing_files
from monai_afire.apps.readers.label_reader import (
    UNCERTAIN,
    LabeledImage,
    LabeledSet,
    LabelReader,
    option,
)
from monai_afire.apps.readers.label_tables import Table, read_table
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.data.datalist.patients import file_patients
from monai_afire.utils.text import counted, first_few, folded, is_absence, known_text

_SECTIONS = {
    **dict.fromkeys(("train", "training"), "training"),
    **dict.fromkeys(("val", "valid", "validate", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_DESCRIBED = (
    "view",
    "scanner",
    "sex",
    "age",
    "manufacturer",
)  # columns that items keep, if they are there


@dataclass
class TableReader(LabelReader):
    """
    Any CSV table with a row for each image.

    Files::

        ROOT/labels.csv with the columns image, label, patient_id, split, and if there: view, sex, age, manufacturer
    """

    table: str = option(
        "labels.csv",
        "the table; a relative path starts from the folder of the label files, or else from ROOT",
    )
    image_column: str = option("image", "column of the image, a path relative to ROOT")
    label_columns: tuple[str, ...] = option(
        ("label",), "column of the class or finding, or columns of the findings"
    )
    num_classes: int = option(
        0, "classes of a single column of numbers from 0; 0: its 0 and 1 are one finding"
    )
    separator: str = option(
        "", "text between the findings that a cell of a single column names, such as '|'"
    )
    no_finding: str = option(
        "No Finding", "what a cell without a finding holds, beside an empty one"
    )
    patient_column: str = option(
        "patient_id", "column of the patient; without it, the file's name is searched for one"
    )
    split_column: str = option(
        "split", "column of the section: train, val or test; without it: by fractions"
    )

    title = "label table"
    reference = ""
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        if self.separator and len(self.label_columns) > 1:
            raise DatalistError(
                "--separator is for one column that names the findings; give one of --label_columns."
            )
        columns = [self.image_column, *self.label_columns]
        path = labels / self.table
        if not path.exists() and (root / self.table).exists():
            path = root / self.table
        table = read_table(path, columns, images=root)
        optional = [
            name for name in (self.patient_column, self.split_column) if name in table.cells
        ]
        may_be_empty = self.separator or len(self.label_columns) > 1
        table.require_cells(
            self.image_column, *optional, *(() if may_be_empty else self.label_columns)
        )
        table.require_unique(self.image_column)
        names = table.column(self.image_column)
        files = existing_files([os.path.join(root, name) for name in names])
        header, label_rows, label_notes = self._labels(table)
        patients, notes = self._patients(table, files)
        notes += label_notes
        sections = self._sections(table) if official else [None] * len(table)
        images = []
        groups = table.described(**{name: name for name in _DESCRIBED})
        absence = self._absence(table)
        rows = zip(names, files, label_rows, absence, patients, groups, sections, strict=True)
        for name, file, label, is_normal, patient, group, section in rows:
            item = {"label": label, "abnormal": _abnormal(label, is_normal)}
            item |= {"patient_id": patient, "view": "unknown", **group}
            images.append(LabeledImage(name, file, item, section))
        return LabeledSet(images, header, notes)

    def _patients(self, table: Table, files: Sequence[str | None]) -> tuple[list[str], list[str]]:
        """Patient of each image, and a note on those that the table does not name."""
        names = table.column(self.image_column)
        given = [""] * len(table)
        if self.patient_column in table.cells:
            given = [known_text(cell) for cell in table.column(self.patient_column)]
        if all(given):
            return file_patients([str(file) for file in files], names, given), []
        patients = file_patients([str(file) for file in files], names, given)
        unknown = sum(patient == name for patient, name in zip(patients, names, strict=True))
        text = f"no column {self.patient_column!r}"
        if any(given):
            text = f"{given.count(''):,} cells of {self.patient_column!r} name nobody ('NA' or the like)"
        text += ": patients are taken from the DICOM headers and names of the files"
        absent = f", which do not give those of {counted(unknown, 'image')}: each of these counts as another patient"
        return patients, [text + absent * (unknown > 0)]

    def _labels(self, table: Table) -> tuple[dict[str, Any], list[Any], list[str]]:
        """What the datalist says of the labels, each image's, and notes."""
        if self.separator:
            return self._named_findings(table)
        if len(self.label_columns) > 1 or not self.num_classes:
            columns = self._finding_columns()
            left_out = [name for name in self.label_columns if name not in columns]
            notes = [
                f"{name!r} counts as no finding: a 1 says that the image is normal"
                for name in left_out
            ]
            return {"finding_names": columns}, self._finding_labels(table, columns), notes
        if self.num_classes < 2:
            raise DatalistError(
                f"num_classes is {self.num_classes}; there must be two at least, or 0 for a finding."
            )
        accepted = {str(number): number for number in range(self.num_classes)}
        header = {"labels": {str(number): f"class {number}" for number in range(self.num_classes)}}
        return header, table.values(self.label_columns[0], accepted), []

    def _finding_columns(self) -> list[str]:
        """Columns of findings, without one such as "No Finding"."""
        columns = [name for name in self.label_columns if not self._is_no_finding(name)]
        if not columns:
            found = f"{', '.join(self.label_columns)} says that nothing is found"
            remedy = "give --label_columns of findings, or --num_classes 2 for the numbers of two classes"
            raise DatalistError(f"{self.table}: {found}; {remedy}.")
        return columns

    def _absence(self, table: Table) -> list[int | None]:
        """1 where a column such as "No Finding" says that an image is normal, 0 where it denies it, else None."""
        columns = [name for name in self.label_columns if self._is_no_finding(name)]
        if self.separator or self.num_classes or not columns:
            return [None] * len(table)
        return [values[0] for values in table.findings(columns[:1])]

    def _is_no_finding(self, name: str) -> bool:
        """Whether a finding's name says that there is none; another --no_finding leaves this to its own words."""
        if not known_text(name) or folded(name) == folded(self.no_finding):
            return True
        return folded(self.no_finding) == folded(TableReader.no_finding) and is_absence(name)

    def _named_findings(self, table: Table) -> tuple[dict[str, Any], list[list[int]], list[str]]:
        """Findings that the cells name, in alphabetical order."""
        cells = [cell.split(self.separator) for cell in table.column(self.label_columns[0])]
        spelled = {name.strip() for cell in cells for name in cell}
        names: dict[str, str] = {}
        for name in sorted(spelled):
            if not self._is_no_finding(name):
                names.setdefault(folded(name), name)  # case and blanks make no other finding
        binarizer = MultiLabelBinarizer(classes=sorted(names.values()))
        named = [{names.get(folded(name), "") for name in cell} - {""} for cell in cells]
        present = binarizer.fit_transform(named)
        if not present.any():
            text = f"no cell of {self.label_columns[0]!r} names a finding; check the column."
            raise DatalistError(f"{self.table}: {text}")
        notes = self._notes_on_words(spelled, names)
        return {"finding_names": sorted(names.values())}, present.tolist(), notes

    def _notes_on_words(self, spelled: Collection[str], names: Mapping[str, str]) -> list[str]:
        """Name the words that look like none, and those that were taken for one."""
        notes = []
        looks = sorted(word for word in set(spelled) - {"", self.no_finding} if is_absence(word))
        as_none = [word for word in looks if self._is_no_finding(word)]
        if as_none:
            notes.append(f"warning: {first_few(map(repr, as_none))} count as no finding")
        if as_findings := [word for word in looks if word not in as_none]:
            text = f"warning: {first_few(map(repr, as_findings))} look like no finding, and count as findings"
            notes.append(f"{text}: set --no_finding to the word that stands for none")
        merged = sorted(
            word for word in set(spelled) - set(names.values()) if folded(word) in names
        )
        if merged:
            notes.append(
                f"{first_few(map(repr, merged))} differ from other findings in case or blanks alone: one each"
            )
        return notes

    def _finding_labels(self, table: Table, columns: Sequence[str]) -> list[list[int | None]]:
        try:
            return table.findings(columns)
        except DatalistError as error:
            if len(columns) > 1:
                raise
            remedy = (
                "For classes numbered from 0 give --num_classes, for names of findings --separator"
            )
            raise DatalistError(f"{error} {remedy}.") from error

    def _sections(self, table: Table) -> list[str | None]:
        if self.split_column in table.cells:
            cells = table.cells[self.split_column]
            lowered = table.cells.assign(**{self.split_column: cells.str.casefold()})
            return [*Table(table.path, lowered).values(self.split_column, _SECTIONS)]
        if self.split_column != TableReader.split_column:
            found = ", ".join(table.cells)
            raise DatalistError(
                f"{self.table}: has no column {self.split_column!r}; the columns are {found}."
            )
        return [None] * len(table)


def _abnormal(label: int | list[int | None], is_normal: int | None) -> int:
    """Whether an image is abnormal, by its findings, and by what a column such as "No Finding" says."""
    abnormal = abnormal_label({"label": label})
    if abnormal == 1 or is_normal is None or is_normal == UNCERTAIN:
        return UNCERTAIN if abnormal is None else abnormal
    uncertain = isinstance(label, list) and UNCERTAIN in label
    if is_normal and uncertain:
        return UNCERTAIN
    return 1 - is_normal  # a 0 says that there is a finding, though none of the columns
