# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list: the images that a detector has scored, the most suspicious first."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from monai_afire.apps.worklist.batch_report import GROUPS
from monai_afire.data.dicom_header import GROUP_ELEMENTS, header_groups, header_of
from monai_afire.data.header_view import other_than_frontal_chest
from monai_afire.detection.conformal import discoveries
from monai_afire.utils.files import atomic_path
from monai_afire.utils.text import harmless

_UIDS = {
    "study_instance_uid": "StudyInstanceUID",
    "series_instance_uid": "SeriesInstanceUID",
    "sop_instance_uid": "SOPInstanceUID",
    "accession_number": "AccessionNumber",
}
_IDENTIFIERS = {
    "patient_id": "PatientID",
    "patient_name": "PatientName",
    "patient_birth_date": "PatientBirthDate",
}
_DECISIONS = {"1": "above", "0": "below", "": ""}
_OTHER_VIEW = "other_view"
FALSE_DISCOVERY_RATE = 0.1
_FEW_NORMALS = 200  # fewer cannot make a p-value below 0.005


@dataclass(frozen=True)
class WorklistSummary:
    """
    How many images were scored, how many are above the threshold, and how many are not frontal chest radiographs.

    Without a threshold the second number is None. The third comes from the DICOM headers. The last two are the number
    of images at a false discovery rate of 10 % and the smallest possible p-value, None without p-values. ``table`` has
    the rows of the work-list in its order, with the columns of the scores and of ``GROUPS``.

    Example:
        >>> print(WorklistSummary(650, 37, discoveries=12, smallest_p=1 / 301))
        37 of 650 above the threshold; 12 at a false discovery rate of 10 % (p-values from 300 normal images)
        >>> print(WorklistSummary(650, 37, discoveries=0, smallest_p=1 / 21))
        37 of 650 above the threshold; 0 at a false discovery rate of 10 % (p-values from 20 normal images: none is
        below 0.048; use at least 200)
    """

    images: int
    above: int | None
    other_views: int = 0
    discoveries: int | None = None
    smallest_p: float | None = None
    table: pd.DataFrame | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        text = f"{self.above} of {self.images} above the threshold"
        if self.above is None:
            text = f"{self.images} images by score; the detector has no threshold"
        if self.discoveries is not None and self.smallest_p:
            normal = round(1 / self.smallest_p) - 1
            few = (
                f": none is below {self.smallest_p:.2g}; use at least {_FEW_NORMALS}"
                if normal < _FEW_NORMALS
                else ""
            )
            text += f"; {self.discoveries} at a false discovery rate of {100 * FALSE_DISCOVERY_RATE:.0f} %"
            text += f" (p-values from {normal} normal images{few})"
        if not self.other_views:
            return text
        return f"{text}; {self.other_views} are no frontal chest radiographs by their headers (column {_OTHER_VIEW})"


def hottest_place(heat: ArrayLike, low: float) -> str:
    """
    Where in the picture the heat is strongest; the left of the picture is usually the patient's right.

    Args:
        heat: heat map ``(H, W)``.
        low: largest heat that counts for none.

    Returns:
        Third of the height and third of the width, such as "upper left", or "" where there is no heat.

    Example:
        >>> hottest_place([[0, 0, 0], [0, 0, 3], [0, 1, 0]], low=1.0), hottest_place(np.eye(9) * 0.5, low=1.0)
        ('middle right', '')
        >>> hottest_place([[0, 0, 0], [0, 3, 0], [0, 0, 0]], low=1.0)
        'center'
    """
    values = np.asarray(heat)
    if not values.max() > low:
        return ""
    place = np.unravel_index(values.argmax(), values.shape)
    row, column = place
    height = ("upper", "middle", "lower")[3 * int(row) // values.shape[0]]
    width = ("left", "center", "right")[3 * int(column) // values.shape[1]]
    return "center" if (height, width) == ("middle", "center") else f"{height} {width}"


def write_worklist(
    scores: str | os.PathLike,
    path: str | os.PathLike,
    threshold: float,
    percentiles: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    sources: Mapping[str, str],
    patient_identifiers: bool = False,
    p_values: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
) -> WorklistSummary:
    """
    Sort the table of scores by the fused score, and say of each image where it is and, of DICOM files, what it is.

    Args:
        scores: CSV table with the columns "image", "fused", "abnormal" ("1", "0", or "" without a threshold),
            "hottest" and possibly "lung_zone"; equal scores keep its order.
        path: the work-list, written whole or not at all. "rank" from 1, "score", "threshold", "decision" ("above",
            "below" or ""), "percentile", "p_value", "discovery" ("yes" for the images at a false discovery rate of
            10 %), "hottest", "lung_zone", "image", the UIDs of study, series and instance, the accession number,
            "other_view", what the header says against a frontal chest radiograph, and "sex", "age" in years, "view"
            and "scanner". A cell that a spreadsheet would run as a formula begins with an apostrophe.
        threshold: of the fused score, NaN for none.
        percentiles: share of the normal images below each score in per cent, NaN where it is not known.
        sources: name in the table -> file, for the headers of DICOM files.
        patient_identifiers: add "patient_id", "patient_name" and "patient_birth_date".
        p_values: conformal p-values of scores, NaN where they are not known; None leaves the columns empty.

    Returns:
        The numbers.
    """
    table = pd.read_csv(scores, dtype=str, keep_default_na=False, encoding_errors="replace")
    table["score"] = table["fused"].astype(float)
    table = table.sort_values("score", ascending=False, kind="stable", ignore_index=True)
    values = table["score"].to_numpy()
    p = np.full(len(values), np.nan) if p_values is None else p_values(values)
    found = discoveries(p, FALSE_DISCOVERY_RATE)
    worklist = pd.DataFrame(
        {
            "rank": range(1, len(table) + 1),
            "score": table["fused"],
            "threshold": f"{threshold:.6g}" if math.isfinite(threshold) else "",
            "decision": table["abnormal"].map(_DECISIONS),
            "percentile": [
                f"{share:.1f}" if math.isfinite(share) else "" for share in percentiles(values)
            ],
            "p_value": [f"{each:.4g}" if math.isfinite(each) else "" for each in p],
            "discovery": np.where(found, "yes", ""),
            "hottest": table["hottest"],
            "lung_zone": table.get("lung_zone", ""),
        }
    )
    elements = {**_UIDS, **(_IDENTIFIERS if patient_identifiers else {})}
    described = [_described(image, sources.get(image, image), elements) for image in table["image"]]
    names = ["image", *elements, _OTHER_VIEW, *GROUPS]
    worklist = pd.concat([worklist, pd.DataFrame(described, columns=names)], axis=1)
    with atomic_path(path) as temporary:
        worklist.to_csv(
            temporary, index=False, lineterminator="\r\n", encoding="utf-8", errors="replace"
        )
    known = np.isfinite(p).any()
    return WorklistSummary(
        len(worklist),
        int((worklist["decision"] == "above").sum()) if math.isfinite(threshold) else None,
        int((worklist[_OTHER_VIEW] != "").sum()),
        int(found.sum()) if known else None,
        float(p_values(np.array([np.inf]))[0]) if p_values and known else None,
        table.assign(**{name: worklist[name] for name in GROUPS}),
    )


def _described(image: str, source: str, elements: Mapping[str, str]) -> list[str]:
    """Name of an image, elements of its header, and the groups that it belongs to."""
    header = header_of(source, [*elements.values(), *GROUP_ELEMENTS])
    named, groups = (
        (str(header.get(keyword) or "") for keyword in elements.values()),
        header_groups(header),
    )
    texts = [image, *named, other_than_frontal_chest(header), *(groups[name] for name in GROUPS)]
    return [harmless(text) for text in texts]
