# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Search for thousands of listed images on disk, and facts from DICOM headers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pydicom
from PIL import Image
from pydicom.errors import InvalidDicomError
from tqdm.auto import tqdm

from monai_afire.data.datalist.checks import DatalistError
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.data.readers.tables import first_few
from monai_afire.transforms.radiograph_io.formats import extension_of
from monai_afire.utils.files import atomic_path

__all__ = ["existing_files", "files_by_name", "progress_bar", "read_dicom_headers", "save_png", "stem_of"]

Thing = TypeVar("Thing")

_MOMENT = 2  # seconds


def stem_of(name: str) -> str:
    """
    File name without folder and extension; the last number of a UID is no extension.

    Example:
        >>> stem_of("a/00000001_000.png"), stem_of("1.2.840.7")
        ('00000001_000', '1.2.840.7')
    """
    name = os.path.basename(name)
    return name[: len(name) - len(extension_of(name))]


def files_by_name(root: Path, names: Sequence[str]) -> list[str | None]:
    """
    Find images by name anywhere below a folder, which is searched once.

    Args:
        root: the folder.
        names: file names; the extension may be missing, or another one than that of the file, as after a conversion.

    Returns:
        Path of each image, or None where there is none.

    Raises:
        DatalistError: When the folder does not exist, or an image is there more than once.
    """
    found: dict[str, list[str]] = {}
    for relative in scan_radiographs(root):
        found.setdefault(stem_of(relative), []).append(relative)
    files: list[str | None] = []
    for name in names:
        matches = found.get(stem_of(name), [])
        if len(matches) > 1:
            matches = [match for match in matches if os.path.basename(match) == name] or matches
        if len(matches) > 1:
            raise DatalistError(
                f"{root}: {name} is there {len(matches)} times: {first_few(matches)}; set --root to a folder that "
                "holds one copy, and --labels to the folder of the label files."
            )
        files.append(os.path.join(root, matches[0]) if matches else None)
    return files


def existing_files(paths: Sequence[str]) -> list[str | None]:
    """
    Look which paths are files.

    Returns:
        Each path, or None where it is no file.
    """
    return [path if os.path.isfile(path) else None for path in progress_bar(paths, "looking for images")]


def progress_bar(things: Sequence[Thing], what: str) -> Iterable[Thing]:
    """
    Go through things, with a progress bar if it takes more than a moment.

    Args:
        things: what to go through.
        what: text in front of the bar.
    """
    return tqdm(things, desc=what, unit="file", delay=_MOMENT, dynamic_ncols=True)


def read_dicom_headers(files: Sequence[str | None]) -> list[tuple[str, str] | None]:
    """
    Patient and view of DICOM files.

    Args:
        files: paths; None, and files whose extension is not that of DICOM files, are passed over.

    Returns:
        PatientID and ViewPosition of each DICOM file, "" for those that it does not say; None for other files.

    Raises:
        DatalistError: When a file cannot be read as DICOM.
    """
    tags = ["PatientID", "ViewPosition"]
    headers: list[tuple[str, str] | None] = []
    for file in progress_bar(files, "reading DICOM headers"):
        if file is None or extension_of(file) not in ("", ".dcm", ".dicom"):
            headers.append(None)
            continue
        try:
            header = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=tags)
        except (InvalidDicomError, OSError, EOFError, ValueError) as error:
            raise DatalistError(f"{file}: is not readable as DICOM ({error}); download it again.") from error
        patient, view = (str(header.get(tag, "") or "").strip() for tag in tags)
        headers.append((patient, view.upper()))
    return headers


def save_png(pixels: np.ndarray, path: Path) -> None:
    """
    Write a gray picture so that an interrupted run leaves no half of it.

    Args:
        pixels: (rows, columns) array of ``uint8`` or ``uint16``.
        path: the file.
    """
    with atomic_path(path) as temporary:
        Image.fromarray(pixels).save(temporary, format="PNG", compress_level=1)
