# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The user's own label table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from monai_afire.apps.readers.label_files import (
    FINDING_VALUES,
    UNCERTAIN,
    LabeledImages,
    LabelSet,
    cell_values,
    existing_files,
    finding_labels,
    read_table,
    refuse_lines,
)
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.labels import abnormal_label
from monai_afire.data.datalist.patients import file_patients
from monai_afire.utils.text import counted, first_few, folded, is_absence, known_text

_NO_FINDING = "No Finding"
_SECTIONS = {
    **dict.fromkeys(("train", "training"), "training"),
    **dict.fromkeys(("val", "valid", "validate", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_KEPT = ("view", "scanner", "sex", "age", "manufacturer")  # columns that items have, too


def read_own_table(
    root: Path,
    labels: Path,
    official: bool,
    table: str = "labels.csv",
    image_column: str = "image",
    label_columns: Sequence[str] = ("label",),
    num_classes: int = 0,
    separator: str = "",
    no_finding: str = _NO_FINDING,
    patient_column: str = "patient_id",
    split_column: str = "split",
) -> LabeledImages:
    """
    Any CSV table with a row for each image.

    Files::

        ROOT/labels.csv with the columns image, label, patient_id, split, and if there: view, sex, age, manufacturer
    """
    path = _table_path(root, labels, table)
    cells = read_table(path, [image_column, *label_columns])
    needed = [image_column, *label_columns]
    if official and split_column != "split":
        needed.append(split_column)
    _require_columns(path, cells, needed)
    names = cells[image_column]
    _require_filled(path, names)
    refuse_lines(path, names[names.duplicated()], f"{image_column} is repeated", "keep one of each")
    if separator:
        found, header, notes = _words(path, cells, label_columns, separator, no_finding)
    elif num_classes and len(label_columns) == 1:
        found, header, notes = _classes(path, cells[label_columns[0]], num_classes)
    else:
        found, header, notes = _findings(path, cells, label_columns, no_finding)
    files = existing_files([os.path.join(root, name) for name in names])
    rows = pd.DataFrame({"name": names, "file": files}).join(found)
    rows["patient_id"], patient_notes = _patients(path, cells, rows, patient_column)
    rows["view"] = "unknown"
    for name in _KEPT:
        if name in cells:
            rows[name] = cells[name].replace("", "unknown" if name == "view" else "")
    if official and split_column in cells:
        rows["section"] = cell_values(path, cells[split_column].str.casefold(), _SECTIONS)
    return LabeledImages(rows, header, patient_notes + notes)


def _table_path(root: Path, labels: Path, table: str) -> Path:
    """The table: --labels itself, or else in that folder, in the one of the images, or as it is typed."""
    if labels.is_file():
        return labels
    places = (labels / table, root / table, Path(table).expanduser())
    return next((path for path in places if path.exists()), places[0])


def _require_columns(path: Path, cells: pd.DataFrame, names: Sequence[str]) -> None:
    """Refuse a table without some columns, with the options that name them."""
    if absent := [name for name in names if name not in cells]:
        columns = ", ".join(cells.columns)
        found = f"no column {first_few(map(repr, absent))}; the columns are {columns}"
        remedy = "name yours by --image_column and --label_columns"
        words = "with --separator '|' where the cells of one column name the findings"
        raise DatalistError(f"{path}: has {found}; {remedy}, {words}.")


def _require_filled(path: Path, cells: pd.Series) -> None:
    remedy = "fill the cells in, or delete the rows"
    refuse_lines(path, cells[cells == ""], f"{cells.name} is empty", remedy)


def _words(
    path: Path,
    cells: pd.DataFrame,
    label_columns: Sequence[str],
    separator: str,
    no_finding: str,
) -> LabeledImages:
    """Findings that the cells of a column name, in alphabetical order; case and blanks make no other finding."""
    if len(label_columns) > 1:
        text = "--separator is for one column that names the findings"
        raise DatalistError(f"{text}; give one of --label_columns.")
    words = cells[label_columns[0]].str.split(separator, regex=False)
    names: dict[str, str] = {}
    for word in sorted({word.strip() for own in words for word in own}):
        if not _means_none(word, no_finding):
            names.setdefault(folded(word), word)
    if not names:
        text = f"no cell of {label_columns[0]!r} names a finding"
        raise DatalistError(f"{path}: {text}; check the column.")
    order = sorted(names, key=names.__getitem__)
    named = [set(map(folded, own)) for own in words]
    labels = [[int(name in own) for name in order] for own in named]
    rows = pd.DataFrame({"label": labels, "abnormal": [max(own) for own in labels]}, cells.index)
    header = {"finding_names": [names[name] for name in order]}
    doubtful = [repr(name) for name in header["finding_names"] if is_absence(name)]
    note = f"warning: {first_few(doubtful)} count as findings: is --no_finding the word for none?"
    return LabeledImages(rows, header, [note] if doubtful else [])


def _means_none(word: str, no_finding: str) -> bool:
    """Whether a word says that there is no finding; another --no_finding leaves this to its own words."""
    if not known_text(word) or folded(word) == folded(no_finding):
        return True
    return folded(no_finding) == folded(_NO_FINDING) and is_absence(word)


def _classes(path: Path, cells: pd.Series, num_classes: int) -> LabeledImages:
    """Numbers of classes from 0 in one column."""
    if num_classes < 2:
        text = f"num_classes is {num_classes}; there must be two at least"
        raise DatalistError(f"{text}, or 0 for a finding.")
    _require_filled(path, cells)
    accepted = {str(number): number for number in range(num_classes)}
    labels = pd.Series(cell_values(path, cells, accepted), cells.index)
    rows = pd.DataFrame({"label": labels, "abnormal": labels.clip(upper=1)})
    return LabeledImages(rows, {"labels": {text: f"class {text}" for text in accepted}}, [])


def _findings(
    path: Path, cells: pd.DataFrame, label_columns: Sequence[str], no_finding: str
) -> LabeledImages:
    """A finding in each column; one such as "No Finding" says whether the image is normal."""
    absence = [name for name in label_columns if _means_none(name, no_finding)]
    findings = [name for name in label_columns if name not in absence]
    if not findings:
        remedy = "give --label_columns of findings, or --num_classes 2 for numbers of two classes"
        raise DatalistError(f"{path}: {absence[0]} says that nothing is found; {remedy}.")
    if len(label_columns) == 1:
        _require_filled(path, cells[findings[0]])
    try:
        labels = finding_labels(path, cells, findings)
    except DatalistError as error:
        text = "For names of findings give --separator '|', for classes from 0 --num_classes"
        raise DatalistError(f"{error} {text}.") from error
    normal: list[int | None] = [None] * len(cells)
    if absence:
        normal = cell_values(path, cells[absence[0]], FINDING_VALUES)
    abnormal = [_abnormal(*pair) for pair in zip(labels, normal, strict=True)]
    rows = pd.DataFrame({"label": labels, "abnormal": abnormal}, cells.index)
    text = "counts as no finding: a 1 says that the image is normal"
    return LabeledImages(
        rows, {"finding_names": findings}, [f"{name!r} {text}" for name in absence]
    )


def _abnormal(label: list[int | None], is_normal: int | None) -> int:
    """Whether an image is abnormal, by its findings, and by what a column such as "No Finding" says."""
    abnormal = abnormal_label({"label": label})
    if abnormal == 1 or is_normal is None or is_normal == UNCERTAIN:
        return UNCERTAIN if abnormal is None else abnormal
    if is_normal and UNCERTAIN in label:
        return UNCERTAIN
    return 1 - is_normal  # a 0 says that there is a finding, though none of the columns


def _patients(
    path: Path, cells: pd.DataFrame, rows: pd.DataFrame, patient_column: str
) -> tuple[list[str], list[str]]:
    """Patient of each image, and a note on those that the table does not name."""
    given = [""] * len(rows)
    if patient_column in cells:
        _require_filled(path, cells[patient_column])
        given = [known_text(cell) for cell in cells[patient_column]]
    patients = file_patients(list(map(str, rows["file"])), rows["name"].tolist(), given)
    if all(given):
        return patients, []
    unnamed = f"{patient_column!r} names no patient of {counted(given.count(''), 'image')}"
    source = "these are taken from the DICOM headers and names of the files"
    lacking = counted(int((rows["name"] == patients).sum()), "image")
    return patients, [f"{unnamed}: {source}; {lacking} without one there count as a patient each"]


OWN_TABLE = LabelSet("label table", "", read_own_table)
