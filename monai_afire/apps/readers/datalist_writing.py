# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writing of datalists: the images of a set divided into sections by patient, as JSON, with a report."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from monai.utils import ensure_tuple

from monai_afire.apps.readers.label_files import LabelSet, progress, stem_of
from monai_afire.data.datalist.datalist_checks import SECTIONS, DatalistError
from monai_afire.data.datalist.patients import split_by_patient
from monai_afire.data.datalist.subsets import NO_FINDING, classes_of
from monai_afire.utils import files
from monai_afire.utils.text import counted, first_few

_PATHS = ("image", "image_2", "mask", "organs")
_NOT_IN_ITEMS = ("name", "file", "section", "run_lengths")
_FRONTAL_VIEWS = ("AP", "PA", "FRONTAL")


def write_datalist(
    label_set: LabelSet,
    root: str | os.PathLike,
    output: str | os.PathLike,
    *,
    labels: str | os.PathLike | None = None,
    split: str = "official",
    val_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
    drop_overlap: bool = False,
    allow_missing: bool = False,
    normal_only: bool = False,
    frontal_only: bool = False,
    findings: Sequence[str] = (),
    mask_dir: str | os.PathLike | None = None,
    **options: Any,
) -> str:
    """
    Read a set's label files and write a MONAI datalist.

    Args:
        label_set: one of :data:`monai_afire.apps.readers.SETS`. All others are the options of the command
            ``monai-afire data SET``, whose help explains them.

    Returns:
        A report: images, patients and positives of each section, and what was left out.

    Raises:
        DatalistError: When label files or images are missing, malformed or contradict each other.
        OSError: When ``output`` or ``mask_dir`` cannot be written.
    """
    target, folder = Path(output).expanduser(), Path(root).expanduser()
    source = Path(labels).expanduser() if labels else folder
    _check_paths(folder, source, target)
    rows, header, notes = label_set.read(folder, source, split == "official", **options)
    is_official = split == "official" and "section" in rows
    if not is_official:
        rows = rows.drop(columns="section", errors="ignore")
        shares = f"{test_fraction:.0%} to test, {val_fraction:.0%} of the others to validation"
        how = f"the patients are divided at random with the seed {seed}, {shares}"
        notes.append(f"no official split: {how}")
    if frontal_only:
        rows = _frontal(rows, notes)
    rows = _on_disk(rows, folder, allow_missing, notes)
    count = len(rows)
    rows = divide_by_patient(rows, val_fraction, test_fraction, seed, drop_overlap)
    if left_out := count - len(rows):
        text = "left out, whose patient is in a later section, too"
        notes.append(f"{counted(left_out, 'image')} {text}")
    if normal_only:
        rows = _normal(rows, label_set.title)
    if findings:
        rows, header = _select_findings(rows, header, findings)
    if mask_dir:
        rows = rows.assign(mask=_draw_masks(label_set, rows, Path(mask_dir).expanduser()))
    settings = {
        "split": "official" if is_official else "random",
        "normal_only": normal_only,
        "frontal_only": frontal_only,
        "val_fraction": val_fraction,
        "test_fraction": test_fraction,
        "seed": seed,
        "drop_overlap": drop_overlap,
        **_own_settings(label_set, options),
    }
    _write(target, label_set, {**header, "settings": settings}, rows)
    return _report(label_set.title, header, rows, notes, target)


def divide_by_patient(
    rows: pd.DataFrame,
    val_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
    drop_overlap: bool = False,
) -> pd.DataFrame:
    """
    Divide images into sections so that no patient is in two of them.

    Args:
        rows: of images, with "patient_id" and, where there is an official split, "section". A split without
            validation gets one from its training patients.
        val_fraction, test_fraction: part of the patients outside test for validation, and of all for test.
        seed: of the choice of patients.
        drop_overlap: keep a patient who is in two sections in the later one alone, instead of a ``DatalistError``.
    """
    for name, value in (("val_fraction", val_fraction), ("test_fraction", test_fraction)):
        if not 0 <= value < 1:
            raise DatalistError(f"{name} is {value}; choose a number from 0 to below 1.")
    if "section" not in rows:
        rows = _moved(rows.assign(section="training"), "test", test_fraction, seed)
    ranks = rows["section"].map(SECTIONS.index)
    latest = ranks.groupby(rows["patient_id"]).transform("max")
    shared = rows["patient_id"][ranks < latest].unique()
    if len(shared) and not drop_overlap:
        text = f"{counted(len(shared), 'patient')} in two sections: {first_few(shared)}"
        remedy = "correct it, or use --split random, or --drop_overlap"
        raise DatalistError(f"the split has {text}; {remedy}.")
    rows = rows[ranks == latest]
    if (rows["section"] == "validation").any():
        return rows
    return _moved(rows, "validation", val_fraction, seed)


def _moved(rows: pd.DataFrame, section: str, fraction: float, seed: int) -> pd.DataFrame:
    """The rows with part of the training patients in another section."""
    is_moved = (rows["section"] == "training").to_numpy(copy=True)
    patients = rows["patient_id"][is_moved]
    if patients.empty:  # only the images of the official test section are there
        return rows
    if fraction > 0 and patients.nunique() < 2:
        remedy = "--test_fraction 0 " * (section == "test") + "--val_fraction 0"
        text = f"one patient cannot be divided into training and {section}"
        raise DatalistError(f"{text}; give {remedy}.")
    # the section's name makes the two choices independent: with the same hash, those with the smallest values would
    # be gone before validation is chosen
    names = [f"{section}:{patient}" for patient in patients]
    findings = None
    if section == "validation" and "label" in rows:
        findings = [classes_of(label) - {NO_FINDING} for label in rows["label"][is_moved]]
    chosen = split_by_patient(names, fraction, seed, findings)
    is_moved[is_moved] = chosen
    return rows.assign(section=rows["section"].mask(is_moved, section))


def _check_paths(root: Path, labels: Path, output: Path) -> None:
    if not root.is_dir():
        raise DatalistError(f"{root}: the folder given by --root does not exist; check the name.")
    if not labels.exists():
        raise DatalistError(f"{labels}: given by --labels, does not exist; check the name.")
    if output.is_dir():
        text = "is a folder; give --output the name of a file, such as datalist.json"
        raise DatalistError(f"{output}: {text}.")
    files.check_writable(output.parent)


def _frontal(rows: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Rows of frontal views, and a note on the others."""
    views = rows["view"].str.upper()
    is_frontal = views.isin(_FRONTAL_VIEWS)
    if not is_frontal.any():
        raise DatalistError("no image is known to be a frontal view; leave --frontal_only out.")
    others, unknown = int((~is_frontal).sum()), int((views == "UNKNOWN").sum())
    text = f"left out by --frontal_only: {counted(others, 'image')}"
    notes.append(f"{text}, {unknown:,} of them of unknown view")
    return rows[is_frontal]


def _on_disk(rows: pd.DataFrame, root: Path, allow_missing: bool, notes: list[str]) -> pd.DataFrame:
    """Rows of images that are there, and a note on the others."""
    absent = rows["name"][rows["file"].isna()].tolist()
    if not absent:
        return rows
    if allow_missing and len(absent) < len(rows):
        found = f"{counted(len(absent), 'image')} ({first_few(absent)})"
        notes.append(f"left out, not on disk: {found}")
        return rows[rows["file"].notna()]
    remedy = "check the folder, or leave absent images out with --allow_missing"
    if found := _name_on_disk(root / absent[0]):
        remedy = f"{found}: list the images by their names on disk"
    text = f"{len(absent):,} of {len(rows):,} listed images are not there: {first_few(absent)}"
    raise DatalistError(f"{root}: {text}; {remedy}.")


def _name_on_disk(path: Path) -> str:
    """How an absent file is called on disk, if only spelling, extension or zeros ahead of its number differ."""
    if spelling := files.spelling_on_disk(path):
        return spelling
    meant = stem_of(path.name).lstrip("0")
    names = sorted(file.name for file in path.parent.glob("*"))
    alike = [name for name in names if stem_of(name).lstrip("0") == meant]
    return f"the folder has {alike[0]}" if alike else ""


def _normal(rows: pd.DataFrame, title: str) -> pd.DataFrame:
    """Normal images for training and validation, those known to be normal or abnormal for test."""
    is_test = rows["section"] == "test"
    rows = rows[(rows["abnormal"] == 0) | (is_test & (rows["abnormal"] == 1))]
    if not (rows["section"] == "training").any():
        text = "no training image is known to be normal"
        raise DatalistError(f"{title}: {text}; leave --normal_only out.")
    return rows


def _select_findings(
    rows: pd.DataFrame, header: dict[str, Any], findings: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The labels reduced to some findings, and the header that goes with them."""
    known = header.get("finding_names", [])
    if unknown := [finding for finding in findings if finding not in known]:
        found = ", ".join(known) or "none: the labels of this set are classes"
        text = f"no finding is called {first_few(unknown)}"
        raise DatalistError(f"{text}; the findings are {found}.")
    places = [known.index(finding) for finding in findings]
    labels = [[own[place] for place in places] for own in rows["label"]]
    return rows.assign(label=labels), {**header, "finding_names": list(findings)}


def _draw_masks(label_set: LabelSet, rows: pd.DataFrame, folder: Path) -> list[str]:
    """Write the mask of each image as PNG with 0 and 255; all empty masks of one shape are one file."""
    if label_set.draw_mask is None:
        raise DatalistError(f"{label_set.title} has no masks to draw; leave --mask_dir out.")
    files.check_writable(folder)
    paths: list[str] = []
    for row in progress(rows.to_dict("records"), "drawing masks"):
        mask = label_set.draw_mask(row).astype(np.uint8) * 255
        name = stem_of(row["name"]) if mask.any() else f"empty_{mask.shape[0]}x{mask.shape[1]}"
        path = folder / f"{name}_mask.png"
        if mask.any() or str(path) not in paths:
            files.save_png(mask, path)
        paths.append(str(path))
    return paths


def _own_settings(label_set: LabelSet, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that only this set has, also those that were not given."""
    own = list(inspect.signature(label_set.read).parameters.values())[3:]
    return {option.name: options.get(option.name, option.default) for option in own}


def _write(path: Path, label_set: LabelSet, header: Mapping[str, Any], rows: pd.DataFrame) -> None:
    """Write the datalist with one item a line, so that a person, or ``diff``, can read it."""
    sections = {name: rows[rows["section"] == name] for name in SECTIONS}
    sections = {name: own for name, own in sections.items() if len(own)}
    # the first entries are those of MONAI's datalists and the Medical Segmentation Decathlon
    entries = {
        "name": label_set.title,
        "description": f"Made by monai-afire data from the label files of {label_set.title}.",
        "reference": label_set.reference,
        "tensorImageSize": "2D",
        "modality": {"0": "CR/DX"},
        **header,
        **{f"num{name.capitalize()}": len(own) for name, own in sections.items()},
    }
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()]
    for name, own in sections.items():
        items = [json.dumps(_item(row, path.parent)) for row in own.to_dict("records")]
        lines = ",\n  ".join(items)
        parts.append(f"{json.dumps(name)}: [\n  {lines}\n ]")
    files.write_text(path, "{\n " + ",\n ".join(parts) + "\n}\n")


def _item(row: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Item of the datalist, without empty cells, with paths relative to its folder."""
    item = {"image": row["file"]}
    for key, value in row.items():
        is_filled = isinstance(value, list) or (pd.notna(value) and value != "")
        if key not in _NOT_IN_ITEMS and is_filled:
            item[key] = value
    for key in _PATHS:
        if key in item:
            paths = [files.path_from(path, base) for path in ensure_tuple(item[key])]
            item[key] = paths[0] if isinstance(item[key], str) else paths
    return item


def _report(
    title: str, header: Mapping[str, Any], rows: pd.DataFrame, notes: Sequence[str], path: Path
) -> str:
    """What was written: images, patients and positives of each section, and notes."""
    counts = {name: _counts(header, rows[rows["section"] == name]) for name in SECTIONS}
    names = header.get("finding_names") or header["labels"].values()
    table = pd.DataFrame(counts, index=["images", "patients", *names])
    patients = counted(rows["patient_id"].nunique(), "patient")
    lines = [*table.map("{:,}".format).to_string().splitlines(), *notes]
    head = f"{title}: {counted(len(rows), 'image')} of {patients}"
    return "\n".join([head, *(f"  {line}" for line in lines), f"written to {path}"])


def _counts(header: Mapping[str, Any], rows: pd.DataFrame) -> list[int]:
    """Images, patients, and positives of each finding, or images of each class."""
    labels = rows["label"].tolist()
    if "finding_names" in header:
        places = range(len(header["finding_names"]))
        positives = [sum(label[place] == 1 for label in labels) for place in places]
    else:
        positives = [labels.count(int(number)) for number in header["labels"]]
    return [len(rows), rows["patient_id"].nunique(), *positives]
