# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list: the images that a detector has scored, the most suspicious first."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from monai_afire.apps.worklist.batch_report import GROUPS
from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.detection.conformal import discoveries
from monai_afire.transforms.radiograph_header import (
    GROUP_ELEMENTS,
    header_groups,
    header_of,
    other_than_frontal_chest,
)
from monai_afire.utils.files import atomic_path
from monai_afire.utils.text import counted, harmless

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


@dataclass(frozen=True)
class WorklistSummary:
    """
    How many images were scored, are above the threshold, are no frontal chest radiographs, and are not judged.

    Args:
        images: number of them.
        above: how many are above the threshold; None without one.
        other_views: how many are no frontal chest radiographs by their headers.
        discoveries: how many remain at a false discovery rate of 10 %, None without p-values.
        not_judged: reason -> number of images.
        comparison: what the scores were compared with, or why with nothing.
        table: rows of the work-list in its order, with the columns of the scores and of ``GROUPS``.

    Example:
        >>> print(WorklistSummary(650, 37, discoveries=12, comparison="compared with 300 normal images"))
        37 of 650 above the threshold; 12 at a false discovery rate of 10 %; compared with 300 normal images
        >>> print(WorklistSummary(650, 37, not_judged={"child (7 years)": 2}))
        37 of 648 above the threshold; 2 not judged: child (7 years)
    """

    images: int
    above: int | None
    other_views: int = 0
    discoveries: int | None = None
    not_judged: Mapping[str, int] = field(default_factory=dict)
    comparison: str = ""
    table: pd.DataFrame | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        left = sum(self.not_judged.values())
        parts = [f"{self.above} of {self.images - left} above the threshold"]
        if self.above is None:
            images = counted(self.images, "image")
            parts = [f"{images} by score, without a threshold"]
        if self.discoveries is not None:
            rate = f"{100 * FALSE_DISCOVERY_RATE:.0f} %"
            parts.append(f"{self.discoveries} at a false discovery rate of {rate}")
        if left:
            parts.append(f"{left} not judged: {reasons_in_words(self.not_judged)}")
        if self.comparison:
            parts.append(self.comparison)
        if self.other_views:
            one, many = "is no frontal chest radiograph", "are no frontal chest radiographs"
            others = counted(self.other_views, one, many)
            parts.append(f"{others} by the header (column {_OTHER_VIEW})")
        return "; ".join(parts)


def reasons_in_words(counts: Mapping[str, int]) -> str:
    """
    Reasons and how often they occur, the most frequent first; the ages of children are counted together.

    Example:
        >>> reasons_in_words({"child (7 years)": 1, "child (9 years)": 2, "lungs not found": 1})
        'child (3), lungs not found (1)'
        >>> reasons_in_words({"child (7 years)": 1})
        'child (7 years)'
    """
    if len(counts) == 1:
        return next(iter(counts))
    kinds: Counter[str] = Counter()
    for reason, count in counts.items():
        kinds[reason.partition(" (")[0]] += count
    return ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())


JUDGMENT_COLUMNS = ("seen_view", "threshold", "percentile", "p_value", "not_judged")


def judgment_cells(judgment: Judgment) -> list[str]:
    """
    What the normal images say about an image, as cells of a table.

    Args:
        judgment: of ``NormalImages.judge``.

    Returns:
        A text for each of ``JUDGMENT_COLUMNS``, "" for none.

    Example:
        >>> judgment_cells(Judgment(0.0125, 2.0, 99.04, True, "AP"))
        ['AP', '2', '99.0', '0.0125', '']
    """
    forms = (".6g", ".1f", ".4g")
    numbers = zip((judgment.threshold, judgment.percentile, judgment.p_value), forms, strict=True)
    texts = [format(value, form) if math.isfinite(value) else "" for value, form in numbers]
    return [judgment.view, *texts, judgment.not_judged]


def write_worklist(
    scores: str | os.PathLike,
    path: str | os.PathLike,
    described: Mapping[str, Mapping[str, str]],
    comparison: str = "",
) -> WorklistSummary:
    """
    Sort the table of scores, and say of each image where it is and, of DICOM files, what it is.

    The order is that of :func:`most_suspicious_first`.

    Args:
        scores: CSV table with the columns "image", "fused", "abnormal" ("1", "0", or "" without a threshold),
            "hottest", possibly "lung_zone", and possibly those of ``JUDGMENT_COLUMNS``.
        path: the work-list, written whole or not at all. "rank" from 1, "score", "threshold", "decision" ("above",
            "below" or ""), "percentile", "p_value", "discovery" ("yes" for the images at a false discovery rate of
            10 %), "not_judged", why the normal images say nothing about this one, "hottest", "lung_zone", "image",
            the columns of :func:`described_image`, and "seen_view", the view and where it comes from. A cell that a
            spreadsheet would run as a formula begins with an apostrophe.
        described: name in the table -> :func:`described_image` of its file; images without one have empty cells.
        comparison: what the scores were compared with, or why with nothing, for the summary.

    Returns:
        The numbers.
    """
    table = most_suspicious_first(_read_scores(scores))
    p = pd.to_numeric(table["p_value"], errors="coerce").to_numpy()
    found = discoveries(p, FALSE_DISCOVERY_RATE)
    headers = _described_images(table["image"], described)
    worklist = pd.concat([_ranked_scores(table, found), headers], axis=1)
    worklist["seen_view"] = table["seen_view"]
    with atomic_path(path) as temporary:
        worklist.to_csv(
            temporary, index=False, lineterminator="\r\n", encoding="utf-8", errors="replace"
        )
    above = int((worklist["decision"] == "above").sum())
    unjudged = table["not_judged"][table["not_judged"] != ""]
    return WorklistSummary(
        images=len(worklist),
        above=above if (table["threshold"] != "").any() else None,
        other_views=int((worklist[_OTHER_VIEW] != "").sum()),
        discoveries=int(found.sum()) if np.isfinite(p).any() else None,
        not_judged=dict(Counter(unjudged)),
        comparison=comparison,
        table=table.assign(**{name: worklist[name] for name in GROUPS}),
    )


def _ranked_scores(table: pd.DataFrame, is_discovery: NDArray[np.bool_]) -> pd.DataFrame:
    """Columns of the work-list that the table of scores, in the order of the work-list, knows."""
    return pd.DataFrame(
        {
            "rank": range(1, len(table) + 1),
            "score": table["fused"],
            "threshold": table["threshold"],
            "decision": table["abnormal"].map(_DECISIONS),
            "percentile": table["percentile"],
            "p_value": table["p_value"],
            "discovery": np.where(is_discovery, "yes", ""),
            "not_judged": table["not_judged"].map(harmless),
            "hottest": table["hottest"],
            "lung_zone": table["lung_zone"],
        }
    )


def _described_images(
    images: Iterable[str], described: Mapping[str, Mapping[str, str]]
) -> pd.DataFrame:
    """Columns of the work-list that say which image it is, and what its header says."""
    columns = list(next(iter(described.values()), described_image("")))
    empty = dict.fromkeys(columns, "")
    rows = [{"image": harmless(image), **described.get(image, empty)} for image in images]
    return pd.DataFrame(rows, columns=["image", *columns])


def most_suspicious_first(table: pd.DataFrame) -> pd.DataFrame:
    """
    Order images for reading: the smallest p-value first, of equal ones the highest score.

    Scores of images with different normal images, such as AP and PA ones, do not compare; their p-values do. Where no
    image has a p-value, the score alone decides. Images that are not judged come last, by score.

    Args:
        table: a row per image, with "fused", its score, "p_value", "" for none, and "not_judged", "" for judged ones.

    Returns:
        The rows in their new order, numbered anew; images that are equal in all this keep theirs.

    Example:
        >>> columns = ["image", "fused", "p_value", "not_judged"]
        >>> rows = [["child", "3", "", "child"], ["AP", "2.1", "0.07", ""], ["PA", "1.3", "0.04", ""]]
        >>> most_suspicious_first(pd.DataFrame(rows, columns=columns))["image"].tolist()
        ['PA', 'AP', 'child']
    """
    keys = pd.DataFrame(
        {
            "unjudged": table["not_judged"] != "",
            "p_value": pd.to_numeric(table["p_value"], errors="coerce"),
            "falling_score": -table["fused"].astype(float),
        }
    )
    order = keys.sort_values(["unjudged", "p_value", "falling_score"], kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _read_scores(scores: str | os.PathLike) -> pd.DataFrame:
    """The table of scores with all columns, as texts."""
    table = pd.read_csv(scores, dtype=str, keep_default_na=False, encoding_errors="replace")
    for name in ("lung_zone", *JUDGMENT_COLUMNS):
        table[name] = table.get(name, "")
    return table


def described_image(source: str, patient_identifiers: bool = False) -> dict[str, str]:
    """
    What the header of a DICOM file says that the work-list shows; empty texts for other files.

    Args:
        source: the file.
        patient_identifiers: add "patient_id", "patient_name" and "patient_birth_date".

    Returns:
        The UIDs of study, series and instance, the accession number, "other_view", what the header says against a
        frontal chest radiograph, "sex", "age" in years, "view" and "scanner", as a spreadsheet may show them.
    """
    elements = {**_UIDS, **(_IDENTIFIERS if patient_identifiers else {})}
    header = header_of(source, [*elements.values(), *GROUP_ELEMENTS])
    named = {name: str(header.get(keyword) or "") for name, keyword in elements.items()}
    groups = header_groups(header)
    texts = {
        **named,
        _OTHER_VIEW: other_than_frontal_chest(header),
        **{name: groups[name] for name in GROUPS},
    }
    return {name: harmless(text) for name, text in texts.items()}
