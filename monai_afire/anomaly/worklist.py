# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list: the images that a detector has scored, the most suspicious first."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydicom.dataset import Dataset

from monai_afire.anomaly.header_view import VIEW_ELEMENTS, other_than_frontal_chest
from monai_afire.anomaly.secondary_capture import read_source
from monai_afire.utils.files import atomic_path

_UIDS = {
    "study_instance_uid": "StudyInstanceUID",
    "series_instance_uid": "SeriesInstanceUID",
    "sop_instance_uid": "SOPInstanceUID",
    "accession_number": "AccessionNumber",
}
_IDENTIFIERS = {"patient_id": "PatientID", "patient_name": "PatientName", "patient_birth_date": "PatientBirthDate"}
_DECISIONS = {"1": "above", "0": "below", "": ""}
_PATIENT_THIRDS = (("left", "", "right"), ("back", "", "front"), ("lower", "", "upper"))
_OTHER_VIEW = "other_view"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what spreadsheets run (OWASP, CSV injection)
_COLUMNS = ("rank", "score", "threshold", "decision", "percentile", "hottest", "image")


@dataclass(frozen=True)
class WorklistSummary:
    """
    How many images were scored, how many are above the threshold, and how many are not frontal chest radiographs.

    Without a threshold the second number is None. The third comes from the DICOM headers.

    Example:
        >>> print(WorklistSummary(650, 37))
        37 of 650 above the threshold
    """

    images: int
    above: int | None
    other_views: int = 0

    def __str__(self) -> str:
        text = f"{self.above} of {self.images} above the threshold"
        if self.above is None:
            text = f"{self.images} images by score; the detector has no threshold"
        if not self.other_views:
            return text
        return f"{text}; {self.other_views} are no frontal chest radiographs by their headers (column {_OTHER_VIEW})"


def hottest_place(heat: ArrayLike, low: float) -> str:
    """
    Where in the picture the heat is strongest; the left of the picture is usually the patient's right.

    Args:
        heat: heat map ``(H, W)``, or of a volume ``(X, Y, Z)``, its axes right, front and up.
        low: largest heat that counts for none.

    Returns:
        Third of the height and third of the width, such as "upper left", or "" where there is no heat. Of a volume the
        thirds of the patient's own height, width and depth, such as "lower right back".

    Example:
        >>> hottest_place([[0, 0, 0], [0, 0, 3], [0, 1, 0]], low=1.0), hottest_place(np.eye(9) * 0.5, low=1.0)
        ('middle right', '')
        >>> hottest_place([[0, 0, 0], [0, 3, 0], [0, 0, 0]], low=1.0)
        'centre'
    """
    values = np.asarray(heat)
    if not values.max() > low:
        return ""
    place = np.unravel_index(values.argmax(), values.shape)
    if values.ndim == 3:
        thirds = [3 * int(index) // side for index, side in zip(place, values.shape, strict=True)]
        words = [names[third] for names, third in zip(_PATIENT_THIRDS, thirds, strict=True)]
        return " ".join(filter(None, (words[2], words[0], words[1]))) or "centre"
    row, column = place
    height = ("upper", "middle", "lower")[3 * int(row) // values.shape[0]]
    width = ("left", "centre", "right")[3 * int(column) // values.shape[1]]
    return "centre" if (height, width) == ("middle", "centre") else f"{height} {width}"


def write_worklist(
    scores: str | os.PathLike,
    path: str | os.PathLike,
    threshold: float,
    percentiles: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    sources: Mapping[str, str],
    patient_identifiers: bool = False,
) -> WorklistSummary:
    """
    Sort the table of scores by the fused score, and say of each image where it is and, of DICOM files, what it is.

    Args:
        scores: CSV table with the columns "image", "fused", "abnormal" ("1", "0", or "" without a threshold) and
            "hottest"; equal scores keep its order.
        path: the work-list, written whole or not at all. "rank" from 1, "score", "threshold", "decision" ("above",
            "below" or ""), "percentile", "hottest", "image", the UIDs of study, series and
            instance, the accession number, and "other_view", what the header says against a frontal chest radiograph.
            A cell that a spreadsheet would run as a formula begins with an apostrophe.
        threshold: of the fused score, NaN for none.
        percentiles: share of the normal images below each score in per cent, NaN where it is not known.
        sources: name in the table -> file, for the headers of DICOM files.
        patient_identifiers: add "patient_id", "patient_name" and "patient_birth_date".

    Returns:
        The numbers.
    """
    with Path(scores).open(newline="", encoding="utf-8", errors="replace") as file:
        rows = [[row[name] for name in ("fused", "abnormal", "hottest", "image")] for row in csv.DictReader(file)]
    rows.sort(key=lambda row: -float(row[0]))
    shares = percentiles(np.array([float(row[0]) for row in rows]))
    elements = {**_UIDS, **(_IDENTIFIERS if patient_identifiers else {})}
    other_views = 0
    limit = f"{threshold:.6g}" if math.isfinite(threshold) else ""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors="replace") as file:
        table = csv.writer(file)
        table.writerow([*_COLUMNS, *elements, _OTHER_VIEW])
        for rank, ((score, abnormal, hottest, image), share) in enumerate(zip(rows, shares, strict=True), start=1):
            percentile = f"{share:.1f}" if math.isfinite(share) else ""
            header = header_of(sources.get(image, image), elements.values())
            texts = [image, *(str(header.get(keyword) or "") for keyword in elements.values())]
            other_view = other_than_frontal_chest(header)
            other_views += bool(other_view)
            cells = [rank, score, limit, _DECISIONS[abnormal], percentile, hottest]
            table.writerow([*cells, *(harmless(text) for text in (*texts, other_view))])
    return WorklistSummary(len(rows), sum(row[1] == "1" for row in rows) if limit else None, other_views)


def harmless(text: str) -> str:
    """
    Text of others as the work-list has it: no spreadsheet runs it as a formula.

    Args:
        text: a name, or an element of a header.

    Returns:
        The text, after an apostrophe where it begins like a formula.

    Example:
        >>> harmless("=1+1"), harmless("a.png")
        ("'=1+1", 'a.png')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def header_of(path: str, keywords: Collection[str] = ()) -> Dataset:
    """Elements of a DICOM file, none where it has none or is none: the pixels were read, the rest is a bonus."""
    try:
        return read_source(path, [*keywords, *VIEW_ELEMENTS])
    except (OSError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError):
        return Dataset()
