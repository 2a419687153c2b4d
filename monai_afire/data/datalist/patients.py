# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Patients of items, and the split by patient."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.transforms.radiograph_files import SUPPORTED_EXTENSIONS, extension_of
from monai_afire.transforms.radiograph_header import header_of
from monai_afire.utils.files import common_folder, path_from
from monai_afire.utils.text import known_text

_PATIENT_PATTERNS = (
    # CheXpert, BIDS
    re.compile(r"(?:^|/)((?:patient|subject|sub)[_-]?\d+)(?![^/_.-])", re.IGNORECASE),
    # MIMIC-CXR, whose numbers begin with 1: p20240101 is a date
    re.compile(r"(?:^|/)(p1\d{7})/"),
    # NIH ChestX-ray14, of 30,805 patients: 20240101 is a date
    re.compile(r"(?:^|/)(000\d{5})_\d{3}\.[^/]*$"),
)
# what stands in headers for everybody, after anonymization
_NOBODY = (
    *("anon", "anonym", "anonymous", "anonymized", "anonymised"),
    *("deidentified", "de-identified", "removed"),
)


def patient_of(name: str) -> str:
    """
    Patient that a relative file name belongs to; the name itself where none can be recognized.

    Known are the names of NIH ChestX-ray14, CheXpert, MIMIC-CXR and BIDS.

    Example:
        >>> patient_of("images/00000013_004.png"), patient_of("train/patient00042/study1/view1_frontal.jpg")
        ('00000013', 'patient00042')
        >>> patient_of("Smith/IM-0001")
        'Smith/IM-0001'
    """
    return _by_name(name) or name


def _by_name(name: str) -> str:
    """Patient in a file's name, "" for none."""
    found = (pattern.search(name) for pattern in _PATIENT_PATTERNS)
    return next((match[1] for match in found if match), "")


def split_by_patient(
    patients: Sequence[str],
    validation_fraction: float,
    seed: int = 0,
    findings: Sequence[Collection[Hashable]] | None = None,
) -> list[bool]:
    r"""
    Choose the validation patients by a hash of their name, so that a new file never moves an old one.

    Patient :math:`p` is in validation when :math:`\mathrm{SHA256}(seed, p) / 2^{256}` is below the fraction. If that
    leaves one side without patients, the patient next to the limit changes sides. For each finding that no validation
    patient has, but several others, the one of them with the lowest hash moves to validation.

    Args:
        patients: patient of each item.
        validation_fraction: in [0, 1); 0 for no validation.
        seed: another number gives another split.
        findings: of each item, those that it is a positive of; None where they are not known.

    Returns:
        True for each item whose patient is in validation.

    Raises:
        DatalistError: When the fraction is outside its range, or there is one patient only.

    Example:
        >>> split_by_patient(["a", "a", "b", "c"], validation_fraction=0.4)
        [True, True, False, False]
        >>> split_by_patient(["a", "a", "b", "c"], validation_fraction=0.4, findings=[[], [], ["edema"], ["edema"]])
        [True, True, False, True]
    """
    if not 0 <= validation_fraction < 1:
        raise DatalistError(f"validation_fraction must be in [0, 1), got {validation_fraction}.")
    if validation_fraction == 0:
        return [False] * len(patients)
    digests = {patient: patient_digest(str(seed), patient) for patient in set(patients)}
    if len(digests) < 2:
        remedy = 'training and validation, or with "patient_id" where the files name one patient wrongly (--datalist)'
        raise DatalistError(f"one patient cannot be split: give a list with {remedy}.")
    order = sorted(digests, key=digests.__getitem__)
    limit = validation_fraction * 2.0**256
    count = sum(int.from_bytes(digests[patient], "big") < limit for patient in order)
    chosen = set(order[: min(max(count, 1), len(order) - 1)])
    positives: dict[Hashable, set[str]] = defaultdict(set)
    for patient, own in zip(patients, findings or [], strict=findings is not None):
        for finding in own:
            positives[finding].add(patient)
    for finding in sorted(positives, key=str):
        if len(positives[finding]) > 1 and not positives[finding] & chosen:
            chosen.add(min(positives[finding], key=digests.__getitem__))
    return [patient in chosen for patient in patients]


def patient_digest(seed: str, patient: str) -> bytes:
    """What decides on a patient: the same on every machine, whatever other patients there are."""
    return hashlib.sha256(f"{seed}:{patient}".encode(errors="surrogateescape")).digest()


def item_patients(
    items: Sequence[Mapping[str, Any]], source: str | os.PathLike = "", base: str | os.PathLike = ""
) -> list[str]:
    """
    Patient of each item: its "patient_id", or else as :func:`file_patients` says.

    Images' names start from ``base``, if it holds them all, else from the deepest folder that does.

    Example:
        >>> item_patients([{"patient_id": 7}, {"image": "00000013_004.png"}, {"image": "a.png"}, {"image": "b.png"}])
        ['7', '00000013', 'a.png', 'b.png']
    """
    given = [known_text(item.get("patient_id")) for item in items]
    paths = [str(item.get("image") or f"item {number}") for number, item in enumerate(items)]
    # only the names that are needed are read
    names = ["" if own else os.path.normpath(path) for path, own in zip(paths, given, strict=True)]
    return file_patients(paths, relative_names(names, base), given, source)


def relative_names(names: Sequence[str], base: str | os.PathLike = "") -> list[str]:
    """Names as seen from a folder above all absolute ones, or from the deepest such folder: its name is no patient."""
    start = common_folder(filter(os.path.isabs, names))
    if base and Path(start).is_relative_to(os.path.abspath(base)):
        start = os.path.abspath(base)  # a new file in another folder changes no other name
    return [
        path_from(name, start) if os.path.isabs(name) else name.replace(os.sep, "/")
        for name in names
    ]


def file_patients(
    paths: Sequence[str],
    names: Sequence[str],
    given: Sequence[str] = (),
    source: str | os.PathLike = "",
) -> list[str]:
    """
    Patient of each file: as given, by its DICOM header, or by its relative name; else each name is a separate patient.

    Numbers that differ in zeros before them, "007" and "7", are one patient. With a ``source``, list or folder, a
    warning counts the files whose patients are not known.
    """
    found = [
        patient or _by_header(path) or _by_name(name)
        for path, name, patient in zip(paths, names, given or [""] * len(names), strict=True)
    ]
    if source and (unknown := found.count("")):
        text = f"the patients of {unknown:,} of {len(found):,} images are not known, and each counts as another patient"
        remedy = 'if some are of one patient, give "patient_id" in a datalist'
        _warn_once(f"{source}: {text}; {remedy}.")
    found = _with_one_spelling(found)
    return [patient or name for patient, name in zip(found, names, strict=True)]


@lru_cache
def _warn_once(text: str) -> None:
    """Warn, though other code changes the filters of warnings between the sections of a list, which repeats them."""
    warnings.warn(text, stacklevel=4)


def _with_one_spelling(patients: Sequence[str]) -> list[str]:
    """Patients whose numbers differ in zeros before them, which spreadsheets drop, by the longest spelling."""
    longest: dict[str, str] = {}
    for patient in filter(str.isdecimal, patients):
        number = patient.lstrip("0")
        longest[number] = max(longest.get(number, ""), patient, key=len)
    return [
        longest[patient.lstrip("0")] if patient.isdecimal() else patient for patient in patients
    ]


@lru_cache(maxsize=1_000_000)
def _by_header(path: str) -> str:
    """Patient of a DICOM file; "" where the header has none."""
    if SUPPORTED_EXTENSIONS.get(extension_of(path), "DICOM") != "DICOM":
        return ""
    header = header_of(path, ["PatientID", "IssuerOfPatientID"])
    patient = known_text(header.get("PatientID"))
    if patient.casefold() in _NOBODY:
        return ""
    return patient and f"{patient} {header.get('IssuerOfPatientID') or ''}".strip()
