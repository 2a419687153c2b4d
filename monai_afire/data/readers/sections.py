# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Division of a set's images by patient into training, validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.data.datalist.patients import split_by_patient
from monai_afire.data.readers.base import LabelledImage
from monai_afire.data.readers.tables import first_few

__all__ = ["SECTIONS", "Division", "divide"]

SECTIONS = ("training", "validation", "test")


@dataclass(frozen=True)
class Division:
    """
    Settings of the division of a set by patient.

    Args:
        val_fraction: part of the patients outside the test section that goes into validation, in [0, 1).
        test_fraction: part of all patients that goes into test, in [0, 1).
        seed: another number gives another division.
        drop_overlap: leave patients that an official split has in two sections out of the earlier one, instead of
            refusing the split.

    Raises:
        DatalistError: When a fraction is out of range.
    """

    val_fraction: float = 0.1
    test_fraction: float = 0.2
    seed: int = 0
    drop_overlap: bool = False

    def __post_init__(self) -> None:
        for name, value in (("val_fraction", self.val_fraction), ("test_fraction", self.test_fraction)):
            if not 0 <= value < 1:
                raise DatalistError(f"{name} is {value}; choose a number from 0 to below 1.")


def divide(images: Sequence[LabelledImage], how: Division) -> tuple[dict[str, list[LabelledImage]], int]:
    """
    Divide images so that no patient is in two sections.

    An official split is kept; if it has no validation section, patients of its training section become one. Without an
    official split the test patients are chosen first, then validation from the others. Both choices are by a hash of
    the patient's name (:func:`~monai_afire.data.split_by_patient`): the same seed gives the same division on every
    machine, and a new image never moves an old one.

    Args:
        images: the images; either each has an official section or none has.
        how: fractions and seed.

    Returns:
        The images of each section, and the number of images left out because of an overlap.

    Raises:
        DatalistError: When an official split has a patient in two sections, or there are too few patients.

    Example:
        >>> images = [LabelledImage(f"{n}.png", None, {"patient_id": f"{n % 5}"}) for n in range(10)]
        >>> sections, _ = divide(images, Division(val_fraction=0.3, test_fraction=0.4))
        >>> {name: sorted(image.name for image in members) for name, members in sections.items()}
        {'training': ['4.png', '9.png'], 'validation': ['1.png', '6.png'], 'test': ['0.png', '2.png', ...]}
    """
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
