# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Writing of datalists: the images of a set divided into sections by patient, as JSON, with a report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.data.datalist.patients import split_by_patient
from monai_afire.data.readers.base import LabelledImage, LabelledSet, LabelReader
from monai_afire.data.readers.images import progress_bar, stem_of
from monai_afire.utils.few_images import FEW_IMAGES
from monai_afire.utils.files import atomic_path, check_writable, save_png
from monai_afire.utils.formatting import table_lines
from monai_afire.utils.text import first_few

SECTIONS = ("training", "validation", "test")


@dataclass(frozen=True)
class Division:
    """Settings of the division of a set by patient."""

    val_fraction: float = 0.1
    test_fraction: float = 0.2
    seed: int = 0
    drop_overlap: bool = False

    def __post_init__(self) -> None:
        for name, value in (("val_fraction", self.val_fraction), ("test_fraction", self.test_fraction)):
            if not 0 <= value < 1:
                raise DatalistError(f"{name} is {value}; choose a number from 0 to below 1.")


def divide(images: Sequence[LabelledImage], how: Division) -> tuple[dict[str, list[LabelledImage]], int]:
    """Divide images so that no patient is in two sections."""
    names = [image.section for image in images]
    if None in names:
        names = _choose(images, ["training"] * len(images), "test", how.test_fraction, how.seed)
    names, dropped = _without_overlap(images, names, how.drop_overlap)
    if "validation" not in names:
        names = _choose(images, names, "validation", how.val_fraction, how.seed)
    sections: dict[str, list[LabelledImage]] = {name: [] for name in SECTIONS}
    for image, name in zip(images, names, strict=True):
        if name is not None:
            sections[name].append(image)
    return sections, dropped


def _choose(
    images: Sequence[LabelledImage], names: Sequence[str | None], chosen: str, fraction: float, seed: int
) -> list[str | None]:
    """Names of the sections after part of the training patients went into another section."""
    # the section's name makes the two choices independent: with the same hash, those with the smallest values would
    # be gone before validation is chosen
    patients = [f"{chosen}:{image.item['patient_id']}" for image in images]
    training = [patient for patient, name in zip(patients, names, strict=True) if name == "training"]
    if not training:  # only the images of the official test section are there
        return list(names)
    if fraction > 0 and len(set(training)) < 2:
        option = "val_fraction" if chosen == "validation" else "test_fraction"
        raise DatalistError(f"one patient cannot be divided into training and {chosen}; set {option} to 0.")
    moved = {p for p, yes in zip(training, split_by_patient(training, fraction, seed), strict=True) if yes}
    return [
        chosen if name == "training" and patient in moved else name
        for name, patient in zip(names, patients, strict=True)
    ]


def _without_overlap(
    images: Sequence[LabelledImage], names: Sequence[str | None], drop: bool
) -> tuple[list[str | None], int]:
    """Names of the sections, None for images of a patient who is in a later section, too; and how many these are."""
    last: dict[str, str] = {}
    shared: dict[str, None] = {}
    for image, name in zip(images, names, strict=True):
        patient, section = image.item["patient_id"], name or ""
        before = last.setdefault(patient, section)
        if before != section:
            shared[patient] = None
            last[patient] = max(before, section, key=SECTIONS.index)
    if shared and not drop:
        raise DatalistError(
            f"the split has {len(shared)} patients in two sections: {first_few(shared)}; correct it, take another with "
            "--split random, or leave them out of the earlier section with --drop_overlap."
        )
    kept = [name if last[image.item["patient_id"]] == name else None for image, name in zip(images, names, strict=True)]
    return kept, kept.count(None)


_PATH_KEYS = ("image_2", "mask", "organs")
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
        lines = [f"{self.title}: {images:,} images of {patients:,} patients"]
        counts = {"images": self.num_images, "patients": self.num_patients}
        rows = {name: {kind: f"{of[name]:,}" for kind, of in counts.items()} for name in self.num_images}
        lines += [f"  {line}" for line in table_lines(rows)]
        lines.append("  " + ", ".join(f"{name} {count:,}" for name, count in self.label_counts.items()))
        if self.absent:
            lines.append(f"  left out, not on disk: {len(self.absent):,} images ({first_few(self.absent)})")
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
        drop_overlap: leave patients that the official split has twice out of the earlier section.
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
    official = any(image.section for image in whole.images)
    images = _frontal(whole.images) if frontal_only else whole.images
    present, absent = _present(images, folder, allow_missing)
    sections, dropped = divide(present, how)
    if normal_only:
        sections = _normal(sections, reader.title)
    sections = {name: members for name, members in sections.items() if members}
    header = _select_findings(whole, findings, sections)
    if mask_dir:
        _draw_masks(sections, Path(mask_dir).expanduser())
    settings = {"split": "official" if official else "random", "normal_only": normal_only, "frontal_only": frontal_only}
    content = {
        "name": reader.title,
        "description": f"Made by monai_afire.data from the label files of {reader.title}.",
        "reference": reader.reference,
        "tensorImageSize": "2D",
        "modality": {"0": "CR/DX"},
        **header,
        "settings": {**settings, **asdict(how), **asdict(reader)},
    }
    _write(target, content, sections)
    notes = [*whole.notes]
    if not official:
        shares = f"{test_fraction:.0%} to test, {val_fraction:.0%} of the others to validation"
        notes.append(f"no official split: the patients are divided at random with the seed {seed}, {shares}")
    if 0 < len(sections.get("validation", ())) < FEW_IMAGES:
        notes.append(
            f"validation has {len(sections['validation'])} images alone: what it chooses is largely chance; give it "
            f"{FEW_IMAGES} or more by --val_fraction or the table"
        )
    if dropped:
        notes.append(f"{dropped:,} images left out, whose patient is in a later section, too")
    return _report(target, reader.title, header, sections, absent, notes)


def _check_arguments(
    reader: LabelReader, root: Path, labels: Path, output: Path, mask_dir: str | os.PathLike | None
) -> None:
    for name, folder in (("--root", root), ("--labels", labels)):
        if not folder.is_dir():
            raise DatalistError(f"{folder}: the folder given by {name} does not exist; check the name.")
    if output.is_dir():
        raise DatalistError(f"{output}: is a folder; give --output the name of a file, such as datalist.json.")
    check_writable(output.parent)
    if mask_dir:
        if not reader.has_masks:
            raise DatalistError(f"{reader.title} has no masks to draw; leave --mask_dir out.")
        check_writable(Path(mask_dir).expanduser())


def _frontal(images: Iterable[LabelledImage]) -> list[LabelledImage]:
    kept = [image for image in images if image.item["view"].upper() in _FRONTAL_VIEWS]
    if not kept:
        raise DatalistError("no image is known to be a frontal view; leave --frontal_only out.")
    return kept


def _present(images: Sequence[LabelledImage], root: Path, allow_missing: bool) -> tuple[list[LabelledImage], list[str]]:
    """Images that are on disk, and the names of the others."""
    present = [image for image in images if image.file is not None]
    absent = [image.name for image in images if image.file is None]
    if not present:
        raise DatalistError(
            f"{root}: none of the {len(images):,} listed images is there: {first_few(absent)}; check --root."
        )
    if absent and not allow_missing:
        raise DatalistError(
            f"{root}: {len(absent):,} of {len(images):,} listed images are not there: {first_few(absent)}; download "
            "them, or leave them out with --allow_missing."
        )
    return present, absent


def _normal(sections: Mapping[str, list[LabelledImage]], title: str) -> dict[str, list[LabelledImage]]:
    """Normal images for training and validation, those known to be normal or abnormal for test."""
    wanted = {name: (0,) if name != "test" else (0, 1) for name in sections}
    kept = {
        name: [image for image in members if image.item["abnormal"] in wanted[name]]
        for name, members in sections.items()
    }
    if not kept["training"]:
        raise DatalistError(f"{title}: no training image is known to be normal; leave --normal_only out.")
    return kept


def _select_findings(
    whole: LabelledSet, findings: Sequence[str], sections: Mapping[str, list[LabelledImage]]
) -> dict[str, Any]:
    """Reduce the labels to some findings, and return the header that goes with them."""
    header = dict(whole.header)
    if not findings:
        return header
    known = header.get("finding_names")
    if known is None:
        raise DatalistError("the labels of this set are classes, not findings to choose from; leave --findings out.")
    unknown = [finding for finding in findings if finding not in known]
    if unknown:
        raise DatalistError(f"no finding is called {first_few(unknown)}; the findings are {', '.join(known)}.")
    indices = [known.index(finding) for finding in findings]
    for members in sections.values():
        for image in members:
            image.item["label"] = [image.item["label"][index] for index in indices]
    return {**header, "finding_names": list(findings)}


def _draw_masks(sections: Mapping[str, list[LabelledImage]], folder: Path) -> None:
    """Write the mask of each image as PNG with 0 and 255; all empty masks of one shape are one file."""
    images = [image for members in sections.values() for image in members]
    empty: set[Path] = set()
    for image in progress_bar(images, "drawing masks"):
        assert image.draw_mask is not None
        mask = image.draw_mask().astype(np.uint8) * 255
        path = folder / f"{stem_of(image.name)}_mask.png"
        if not mask.any():
            path = folder / f"empty_{mask.shape[0]}x{mask.shape[1]}_mask.png"
        if path not in empty:
            save_png(mask, path)
        if not mask.any():
            empty.add(path)
        image.item["mask"] = str(path)


def _relative_to(base: Path) -> Callable[[str], str]:
    """Function that makes paths relative to a folder, quick for many files of few folders."""
    start = os.path.abspath(base)
    folders: dict[str, str] = {}

    def relative(path: str) -> str:
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = os.path.relpath(os.path.abspath(folder), start)
        return Path(folders[folder], name).as_posix()

    return relative


def _write(path: Path, header: Mapping[str, Any], sections: Mapping[str, Sequence[LabelledImage]]) -> None:
    """Write the datalist with one item a line, so that a person, or ``diff``, can read it."""
    relative = _relative_to(path.parent)
    numbers = {f"num{name.capitalize()}": len(members) for name, members in sections.items()}
    with atomic_path(path) as temporary, temporary.open("w", encoding="ascii") as stream:
        stream.write("{")
        for key, value in {**header, **numbers}.items():
            stream.write(f"\n {json.dumps(key)}: {json.dumps(value)},")
        for number, (name, members) in enumerate(sections.items()):
            stream.write(f"{',' if number else ''}\n {json.dumps(name)}: [\n  ")
            lines = (json.dumps(_entry(image, relative)) for image in members)
            stream.write(",\n  ".join(lines) + "\n ]")
        stream.write("\n}\n")


def _entry(image: LabelledImage, relative: Callable[[str], str]) -> dict[str, Any]:
    """Item of the datalist with relative paths."""
    item = {"image": relative(str(image.file)), **image.item}
    for key in _PATH_KEYS:
        if key in item:
            item[key] = relative(item[key]) if isinstance(item[key], str) else [relative(path) for path in item[key]]
    return item


def _report(
    path: Path,
    title: str,
    header: Mapping[str, Any],
    sections: Mapping[str, Sequence[LabelledImage]],
    absent: list[str],
    notes: list[str],
) -> DatalistReport:
    items = [image.item for members in sections.values() for image in members]
    if "finding_names" in header:
        columns = zip(header["finding_names"], zip(*(item["label"] for item in items), strict=True), strict=True)
        counts = {name: values.count(1) for name, values in columns}
    else:
        occurring = Counter(str(item["label"]) for item in items)
        counts = {name: occurring[value] for value, name in header["labels"].items()}
    return DatalistReport(
        path=path,
        title=title,
        num_images={name: len(sections.get(name, ())) for name in SECTIONS},
        num_patients={name: len({i.item["patient_id"] for i in sections.get(name, ())}) for name in SECTIONS},
        label_counts=counts,
        absent=absent,
        notes=notes,
    )
