# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Headers of DICOM files without their pixels: elements, and the groups of patients and machines that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from datetime import date, datetime
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset

from monai_afire.apps.intake.header_view import VIEW_ELEMENTS
from monai_afire.transforms.radiograph_files import HEAD_BYTES, identify_content
from monai_afire.utils.text import harmless

__all__ = [
    "AGE_ELEMENTS",
    "GROUP_ELEMENTS",
    "SCANNER_ELEMENTS",
    "NotDICOMError",
    "age_in_years",
    "header_groups",
    "header_of",
    "read_header",
    "scanner_of",
]

SCANNER_ELEMENTS = ("Manufacturer", "ManufacturerModelName")
GROUP_ELEMENTS = ("PatientSex", "PatientAge", "ViewPosition", *SCANNER_ELEMENTS)
AGE_ELEMENTS = ("PatientAge", "PatientBirthDate", "StudyDate")
_YEARS = {"D": 1 / 365.25, "W": 7 / 365.25, "M": 1 / 12, "Y": 1.0}
_UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError)


class NotDICOMError(ValueError):
    """A file that has no DICOM header."""


def read_header(path: str | os.PathLike, keywords: Collection[str]) -> Dataset:
    """
    Read elements of the header of a DICOM file without its pixels.

    Args:
        path: the file.
        keywords: of the elements.

    Returns:
        The elements that the file has.

    Raises:
        NotDICOMError: when it is no DICOM file.
    """
    if Path(path).is_dir():
        raise NotDICOMError(f"{path} is a folder, which has no header")
    with open(path, "rb") as file:
        if identify_content(file.read(HEAD_BYTES)) != "DICOM":
            raise NotDICOMError(f"{path} is no DICOM file")
        file.seek(0)
        header = pydicom.dcmread(
            file, force=True, stop_before_pixels=True, specific_tags=list(keywords)
        )
    header.filename = os.fspath(path)
    return header


def header_of(path: str, keywords: Collection[str] = ()) -> Dataset:
    """
    Elements of a DICOM file, with those of its view; none where it has none or is none.

    The pixels were read, so a header that cannot be is no reason to stop.

    Args:
        path: the file.
        keywords: of the elements, besides those of ``VIEW_ELEMENTS``.

    Example:
        >>> len(header_of("missing.dcm"))
        0
    """
    try:
        return read_header(path, [*keywords, *VIEW_ELEMENTS])
    except _UNREADABLE:
        return Dataset()


def header_groups(header: Dataset) -> dict[str, str]:
    """
    Sex, age in years, view, manufacturer and scanner.

    Args:
        header: with those of ``GROUP_ELEMENTS`` that the file has.

    Returns:
        A text for each, "" for unknown.

    Example:
        >>> header = Dataset()
        >>> header.PatientAge, header.PatientSex = "057Y", "F"
        >>> header_groups(header)["age"], header_groups(header)["view"]
        ('57', '')
    """
    sex, age, view, maker, _ = (_text(header, keyword) for keyword in GROUP_ELEMENTS)
    years = re.fullmatch(r"(\d{1,3})Y", age)
    age = str(int(years[1])) if years else ""
    return {
        "sex": sex,
        "age": age,
        "view": view,
        "manufacturer": maker,
        "scanner": scanner_of(header),
    }


def age_in_years(header: Dataset) -> float | None:
    """
    Age of the patient by PatientAge, or by the dates of birth and of the study.

    Args:
        header: with those of ``AGE_ELEMENTS`` that the file has.

    Returns:
        Years, None where the header does not say.

    Example:
        >>> header = Dataset()
        >>> header.PatientAge = "018M"
        >>> age_in_years(header)
        1.5
    """
    found = re.fullmatch(r"(\d{1,3})([DWMY])", str(header.get("PatientAge") or "").strip())
    if found and int(found[1]):  # de-identified files have 000Y
        return int(found[1]) * _YEARS[found[2]]
    birth, study = (_date(header.get(name)) for name in ("PatientBirthDate", "StudyDate"))
    if birth is None or study is None or not birth <= study:
        return None
    return (study - birth).days / 365.25


def _date(value: object) -> date | None:
    try:
        return datetime.strptime(str(value or "").strip(), "%Y%m%d").date()
    except ValueError:
        return None


def scanner_of(header: Dataset) -> str:
    """Manufacturer and model as ``SCANNER_ELEMENTS`` of a header say, "" for unknown."""
    names = [str(header.get(keyword) or "").strip() for keyword in SCANNER_ELEMENTS]
    return harmless(" ".join(names).strip())


def _text(header: Dataset, keyword: str) -> str:
    """An element as text that a table can show."""
    return harmless(str(header.get(keyword) or "").strip())
