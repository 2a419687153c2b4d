# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writing of datalists: the images of a set divided into sections by patient, as JSON, with a report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from monai.utils import ensure_tuple

from monai_afire.apps.evaluation.patient_bootstrap import LEAST_PATIENTS
from monai_afire.apps.readers.images import progress_bar, stem_of
from monai_afire.apps.readers.label_reader import LabeledImage, LabelReader
from monai_afire.apps.results.report_text import table_lines
from monai_afire.data.datalist.datalist_checks import SECTIONS, DatalistError
from monai_afire.data.datalist.patients import split_by_patient
from monai_afire.utils.few_images import FEW_IMAGES
from monai_afire.utils.files import (
    check_writable,
    path_from,
    save_png,
    spelling_on_disk,
    write_text,
)
from monai_afire.utils.text import counted, first_few


@dataclass(frozen=True)
class Division:
    """Settings of the division of a set by patient."""

    val_fraction: float = 0.1
    test_fraction: float = 0.2
    seed: int = 0
    drop_overlap: bool = False

    def __post_init__(self) -> None:
        for name, value in (
            ("val_fraction", self.val_fraction),
            ("test_fraction", self.test_fraction),
        ):
            if not 0 <= value < 1:
                raise DatalistError(f"{name} is {value}; choose a number from 0 to below 1.")


def divide(
    images: Sequence[LabeledImage], how: Division, num_listed: int = 0
) -> list[LabeledImage]:
    """
    The images with their sections, so that no patient is in two of them; without those that overlap.

    The number of listed patients, with those that have no image on disk, stands in an error.
    """
    rows = pd.DataFrame(
        [(image.item["patient_id"], image.section) for image in images],
        columns=["patient", "section"],
    )
    if rows["section"].isna().any():
        rows["section"] = "training"
        _move(rows, "test", how, num_listed)
    ranks = rows["section"].map(SECTIONS.index).groupby(rows["patient"])
    shared = rows["patient"][ranks.transform("nunique") > 1].unique()
    if len(shared) and not how.drop_overlap:
        text = (
            f"the split has {counted(len(shared), 'patient')} in two sections: {first_few(shared)}"
        )
        raise DatalistError(f"{text}; correct it, or use --split random, or --drop_overlap.")
    kept = rows[rows["section"] == ranks.transform("max").map(dict(enumerate(SECTIONS)))].copy()
    if not (kept["section"] == "validation").any():
        _move(kept, "validation", how, num_listed)
    return [replace(images[row], section=section) for row, section in kept["section"].items()]


def _move(rows: pd.DataFrame, section: str, how: Division, num_listed: int) -> None:
    """Move part of the training patients into another section."""
    training = rows["patient"][rows["section"] == "training"]
    fraction = how.val_fraction if section == "validation" else how.test_fraction
    if training.empty:  # only the images of the official test section are there
        return
    if fraction > 0 and training.nunique() < 2:
        raise DatalistError(_indivisible(rows, section, how, num_listed))
    # the section's name makes the two choices independent: with the same hash, those with the smallest values would
    # be gone before validation is chosen
    moved = split_by_patient([f"{section}:{patient}" for patient in training], fraction, how.seed)
    rows.loc[training.index[moved], "section"] = section


def _indivisible(rows: pd.DataFrame, section: str, how: Division, num_listed: int) -> str:
    """That there is one patient for two sections, what became of the others, and all options that help."""
    there = rows["patient"].nunique()
    found = f"{counted(max(num_listed, there), 'listed patient')}, {there} with images on disk"
    counts = f" ({found}, 1 in training)" if max(num_listed, there) > 1 else ""
    options = ["--val_fraction 0"]
    if section == "test":
        options = ["--test_fraction 0", *(options if how.val_fraction > 0 else [])]
    return (
        f"one patient cannot be divided into training and {section}{counts}; "
        f"give {' '.join(options)}."
    )


_PATH_KEYS = ("image", "image_2", "mask", "organs")
_FRONTAL_VIEWS = {"AP", "PA", "FRONTAL"}


@dataclass(frozen=True)
class DatalistReport:
    """
    Report of a datalist: its images, patients and labels, and what was left out.

    Args:
        path: the datalist.
        title: name of the set.
        num_images: number of images by section.
        num_patients: number of patients by section.
        label_counts: how often each label occurs: positives of a finding, or images of a class.
        absent: names of the images that are listed but not on disk.
        notes: further lines.
    """

    path: Path
    title: str
    num_images: dict[str, int]
    num_patients: dict[str, int]
    label_counts: dict[str, int]
    absent: list[str]
    notes: list[str]

    def __str__(self) -> str:
        images, patients = sum(self.num_images.values()), sum(self.num_patients.values())
        lines = [f"{self.title}: {counted(images, 'image')} of {counted(patients, 'patient')}"]
        counts = {"images": self.num_images, "patients": self.num_patients}
        rows = {
            name: {kind: f"{of[name]:,}" for kind, of in counts.items()} for name in self.num_images
        }
        lines += [f"  {line}" for line in table_lines(rows)]
        lines.append(
            "  " + ", ".join(f"{name} {count:,}" for name, count in self.label_counts.items())
        )
        if self.absent:
            lines.append(
                f"  left out, not on disk: {counted(len(self.absent), 'image')} ({first_few(self.absent)})"
            )
        lines += [f"  {note}" for note in self.notes]
        return "\n".join([*lines, f"written to {self.path}"])


def write_datalist(
    reader: LabelReader,
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
) -> DatalistReport:
    """
    Read a set's label files and write a MONAI datalist.

    Args:
        reader: reader of the set.
        root: folder of the images, searched with its subfolders where the labels do not say where an image lies.
        output: the JSON file; paths in it are relative to its folder.
        labels: folder of the label files, ``root`` if None.
        split: "official", where the set has such a split, or "random".
        val_fraction: part of the patients outside test that goes into validation, where no official split says it.
        test_fraction: part of the patients that goes into test, where no official split says it.
        seed: of the choice of patients.
        drop_overlap: keep a patient who is in two sections of the official split in the later one alone.
        allow_missing: leave out images that are not on disk instead of refusing.
        normal_only: leave all but the normal images out of training and validation, and images of which the labels do
            not tell whether they are normal out of test, as training on normal images and anomaly detection need it.
            The sections are those of the whole list.
        frontal_only: leave lateral and unusual views out.
        findings: names of the findings to keep in "label", in this order; all if empty.
        mask_dir: folder to draw masks to, for sets that have some; None for none.

    Returns:
        What was written.

    Raises:
        DatalistError: When label files or images are missing, malformed or contradict each other.
        OSError: When ``output`` or ``mask_dir`` cannot be written.
    """
    target, folder = Path(output).expanduser(), Path(root).expanduser()
    source = Path(labels).expanduser() if labels else folder
    _check_arguments(reader, folder, source, target, mask_dir)
    how = Division(val_fraction, test_fraction, seed, drop_overlap)
    whole = reader.read(folder, source, reader.has_split and split == "official")
    listed = _frontal(whole.images) if frontal_only else whole.images
    present = _present(listed, folder, allow_missing)
    divided = divide(present, how, num_listed=len(_patients(listed)))
    kept = _normal(divided, reader.title) if normal_only else divided
    header = _select_findings(whole.header, findings, kept)
    if mask_dir:
        _draw_masks(kept, Path(mask_dir).expanduser())
    has_sections = any(image.section for image in whole.images)
    settings = {
        "split": "official" if has_sections else "random",
        "normal_only": normal_only,
        "frontal_only": frontal_only,
        **asdict(how),
        **asdict(reader),
    }
    _write(target, {**_description(reader), **header, "settings": settings}, kept)
    notes = [*whole.notes, *([] if has_sections else [_note_on_random_split(how)])]
    notes += [*_notes_on_validation(header, kept), *_notes_on_test(kept)]
    notes += _notes_on_overlap(len(present) - len(divided))
    absent = [image.name for image in listed if image.file is None]
    return _report(target, reader.title, header, kept, absent, notes)


def _report(
    path: Path,
    title: str,
    header: Mapping[str, Any],
    images: Sequence[LabeledImage],
    absent: list[str],
    notes: list[str],
) -> DatalistReport:
    """The numbers of what was written."""
    sections = _by_section(images)
    return DatalistReport(
        path=path,
        title=title,
        num_images={name: len(members) for name, members in sections.items()},
        num_patients={name: len(_patients(members)) for name, members in sections.items()},
        label_counts=_label_counts(header, [image.item["label"] for image in images]),
        absent=absent,
        notes=notes,
    )


def _by_section(images: Sequence[LabeledImage]) -> dict[str, list[LabeledImage]]:
    return {name: [image for image in images if image.section == name] for name in SECTIONS}


def _patients(images: Iterable[LabeledImage]) -> set[str]:
    return {image.item["patient_id"] for image in images}


def _description(reader: LabelReader) -> dict[str, Any]:
    """First entries of a datalist, those that MONAI's datalists and the Medical Segmentation Decathlon have."""
    return {
        "name": reader.title,
        "description": f"Made by monai-afire data from the label files of {reader.title}.",
        "reference": reader.reference,
        "tensorImageSize": "2D",
        "modality": {"0": "CR/DX"},
    }


def _note_on_random_split(how: Division) -> str:
    shares = f"{how.test_fraction:.0%} to test, {how.val_fraction:.0%} of the others to validation"
    return (
        f"no official split: the patients are divided at random with the seed {how.seed}, {shares}"
    )


def _notes_on_overlap(num_dropped: int) -> list[str]:
    """How many images of patients in two sections are left out."""
    if not num_dropped:
        return []
    return [f"{counted(num_dropped, 'image')} left out, whose patient is in a later section, too"]


def _notes_on_validation(header: Mapping[str, Any], images: Sequence[LabeledImage]) -> list[str]:
    """Whether validation is too small, or has labels of which no figure can be made."""
    labels = [image.item["label"] for image in images if image.section == "validation"]
    notes = []
    if 0 < len(labels) < FEW_IMAGES:
        found = counted(len(labels), "image")
        few = f"warning: validation has only {found}: what it chooses is largely chance"
        notes.append(f"{few}; give it {FEW_IMAGES} or more by --val_fraction or the table")
    if constant := _constant_findings(header, labels):
        text = f"warning: in validation, no two images differ in {first_few(constant)}"
        remedy = "list more images, or raise --val_fraction"
        notes.append(f"{text}: their AUC is nan there; {remedy}")
    return notes


def _notes_on_test(images: Sequence[LabeledImage]) -> list[str]:
    """Whether test has too few patients for an interval."""
    found = len(_patients(_by_section(images)["test"]))
    if not 0 < found < LEAST_PATIENTS:
        return []
    few = f"warning: test has only {counted(found, 'patient')}"
    remedy = "raise --test_fraction, or list more images"
    return [f"{few}: intervals need {LEAST_PATIENTS} or more; {remedy}"]


def _constant_findings(header: Mapping[str, Any], labels: Sequence[Any]) -> list[str]:
    """Names of the findings that all images have, or none."""
    constant = []
    for place, name in enumerate(header.get("finding_names", ())):
        values = {label[place] for label in labels} & {0, 1}
        if labels and len(values) < 2:
            constant.append(name)
    return constant


def _check_arguments(
    reader: LabelReader, root: Path, labels: Path, output: Path, mask_dir: str | os.PathLike | None
) -> None:
    for name, folder in (("--root", root), ("--labels", labels)):
        if not folder.is_dir():
            raise DatalistError(
                f"{folder}: the folder given by {name} does not exist; check the name."
            )
    if output.is_dir():
        raise DatalistError(
            f"{output}: is a folder; give --output the name of a file, such as datalist.json."
        )
    check_writable(output.parent)
    if mask_dir:
        if not reader.has_masks:
            raise DatalistError(f"{reader.title} has no masks to draw; leave --mask_dir out.")
        check_writable(Path(mask_dir).expanduser())


def _frontal(images: Iterable[LabeledImage]) -> list[LabeledImage]:
    kept = [image for image in images if image.item["view"].upper() in _FRONTAL_VIEWS]
    if not kept:
        raise DatalistError("no image is known to be a frontal view; leave --frontal_only out.")
    return kept


def _present(images: Sequence[LabeledImage], root: Path, allow_missing: bool) -> list[LabeledImage]:
    """Images that are on disk."""
    present = [image for image in images if image.file is not None]
    names = [image.name for image in images if image.file is None]
    absent = first_few(names)
    spelling = spelling_on_disk(root / names[0]) if names else ""
    absent += f" ({spelling})" if spelling else ""
    if not present:
        raise DatalistError(
            f"{root}: none of the {len(images):,} listed images is there: {absent}; check the folder."
        )
    if absent and not allow_missing:
        text = f"{len(images) - len(present):,} of {len(images):,} listed images are not there: {absent}"
        raise DatalistError(
            f"{root}: {text}; download them, or leave them out with --allow_missing."
        )
    return present


def _normal(images: Iterable[LabeledImage], title: str) -> list[LabeledImage]:
    """Normal images for training and validation, those known to be normal or abnormal for test."""
    kept = [
        image
        for image in images
        if image.item["abnormal"] in ((0, 1) if image.section == "test" else (0,))
    ]
    if not any(image.section == "training" for image in kept):
        raise DatalistError(
            f"{title}: no training image is known to be normal; leave --normal_only out."
        )
    return kept


def _select_findings(
    header: dict[str, Any], findings: Sequence[str], images: Iterable[LabeledImage]
) -> dict[str, Any]:
    """Reduce the labels to some findings, and return the header that goes with them."""
    if not findings:
        return header
    known = header.get("finding_names")
    if known is None:
        raise DatalistError(
            "the labels of this set are classes, not findings to choose from; leave --findings out."
        )
    if unknown := [finding for finding in findings if finding not in known]:
        raise DatalistError(
            f"no finding is called {first_few(unknown)}; the findings are {', '.join(known)}."
        )
    for image in images:
        image.item["label"] = [image.item["label"][known.index(finding)] for finding in findings]
    return {**header, "finding_names": list(findings)}


def _label_counts(header: Mapping[str, Any], labels: Sequence[Any]) -> dict[str, int]:
    """Positives of each finding, or images of each class."""
    if "finding_names" in header:
        return {
            name: sum(label[k] == 1 for label in labels)
            for k, name in enumerate(header["finding_names"])
        }
    occurring = Counter(map(str, labels))
    return {name: occurring[value] for value, name in header["labels"].items()}


def _draw_masks(images: Sequence[LabeledImage], folder: Path) -> None:
    """Write the mask of each image as PNG with 0 and 255; all empty masks of one shape are one file."""
    written: set[Path] = set()
    for image in progress_bar(images, "drawing masks"):
        assert image.draw_mask is not None
        mask = image.draw_mask().astype(np.uint8) * 255
        name = stem_of(image.name) if mask.any() else f"empty_{mask.shape[0]}x{mask.shape[1]}"
        path = folder / f"{name}_mask.png"
        if path not in written:
            save_png(mask, path)
            written.add(path)
        image.item["mask"] = str(path)


def _write(path: Path, header: Mapping[str, Any], images: Sequence[LabeledImage]) -> None:
    """Write the datalist with one item a line, so that a person, or ``diff``, can read it."""
    sections = {name: members for name, members in _by_section(images).items() if members}
    numbers = {f"num{name.capitalize()}": len(members) for name, members in sections.items()}
    parts = [
        f"{json.dumps(key)}: {json.dumps(value)}" for key, value in {**header, **numbers}.items()
    ]
    for name, members in sections.items():
        lines = ",\n  ".join(json.dumps(_entry(image, path.parent)) for image in members)
        parts.append(f"{json.dumps(name)}: [\n  {lines}\n ]")
    write_text(path, "{\n " + ",\n ".join(parts) + "\n}\n")


def _entry(image: LabeledImage, base: Path) -> dict[str, Any]:
    """Item of the datalist with paths relative to its folder."""
    item = {"image": str(image.file), **image.item}
    for key in _PATH_KEYS:
        if key in item:
            paths = [path_from(path, base) for path in ensure_tuple(item[key])]
            item[key] = paths[0] if isinstance(item[key], str) else paths
    return item
