# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Search for thousands of listed images on disk, and facts from DICOM headers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pydicom
from pydicom.errors import InvalidDicomError
from tqdm.auto import tqdm

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.transforms.radiograph_files import SUPPORTED_EXTENSIONS, extension_of
from monai_afire.utils.text import first_few

Thing = TypeVar("Thing")

_MOMENT = 2  # seconds


def stem_of(name: str) -> str:
    """File name without folder and extension; the last number of a UID is no extension."""
    name = os.path.basename(name)
    return name[: len(name) - len(extension_of(name))]


def files_by_name(root: Path, names: Sequence[str]) -> list[str | None]:
    """Find images by name anywhere below a folder, which is searched once."""
    found: dict[str, list[str]] = {}
    for relative in scan_radiographs(root):
        found.setdefault(stem_of(relative), []).append(relative)
    files: list[str | None] = []
    for name in names:
        matches = found.get(stem_of(name), [])
        if len(matches) > 1:
            matches = [match for match in matches if os.path.basename(match) == name] or matches
        if len(matches) > 1:
            text = f"{name} is there {len(matches)} times: {first_few(matches)}"
            raise DatalistError(f"{root}: {text}; set --root to a folder with one copy.")
        files.append(os.path.join(root, matches[0]) if matches else None)
    return files


def existing_files(paths: Sequence[str]) -> list[str | None]:
    """Look which paths are files."""
    return [
        path if os.path.isfile(path) else None for path in progress_bar(paths, "looking for images")
    ]


def progress_bar(things: Sequence[Thing], what: str) -> Iterable[Thing]:
    """Go through things, with a progress bar if it takes more than a moment."""
    return tqdm(things, desc=what, unit="file", delay=_MOMENT, dynamic_ncols=True)


def read_dicom_headers(files: Sequence[str | None]) -> list[tuple[str, str]]:
    """Patient and view of DICOM files, "" where the header does not give them."""
    headers: list[tuple[str, str]] = []
    for file in progress_bar(files, "reading DICOM headers"):
        header = pydicom.Dataset()
        try:
            if (
                file is not None
                and SUPPORTED_EXTENSIONS.get(extension_of(file), "DICOM") == "DICOM"
            ):
                header = pydicom.dcmread(
                    file, stop_before_pixels=True, specific_tags=["PatientID", "ViewPosition"]
                )
        except (InvalidDicomError, OSError, EOFError, ValueError) as error:
            raise DatalistError(
                f"{file}: is not readable as DICOM ({error}); download it again."
            ) from error
        patient, view = (
            str(header.get(tag) or "").strip() for tag in ("PatientID", "ViewPosition")
        )
        headers.append((patient, view.upper()))
    return headers
