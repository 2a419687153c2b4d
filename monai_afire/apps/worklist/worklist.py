# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Work-list: the images that a detector has scored, the most suspicious first."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd
from pydicom.dataset import Dataset

from monai_afire.apps.worklist.normal_images import Judgment
from monai_afire.detection.conformal import discoveries
from monai_afire.transforms.radiograph_header import header_groups, other_than_frontal_chest
from monai_afire.utils.files import atomic_path
from monai_afire.utils.text import counted, harmless

GROUPS = ("sex", "age", "view", "scanner")
JUDGMENT_COLUMNS = ("seen_view", "threshold", "percentile", "p_value", "not_judged")
UIDS = {
    "study_instance_uid": "StudyInstanceUID",
    "series_instance_uid": "SeriesInstanceUID",
    "sop_instance_uid": "SOPInstanceUID",
    "accession_number": "AccessionNumber",
}
IDENTIFIERS = {
    "patient_id": "PatientID",
    "patient_name": "PatientName",
    "patient_birth_date": "PatientBirthDate",
}
_DECISIONS = {"1": "above", "0": "below", "": ""}
_FALSE_DISCOVERY_RATE = 0.1


def judgment_cells(judgment: Judgment) -> list[str]:
    """What the normal images say about an image, as a text for each of ``JUDGMENT_COLUMNS``, "" for none."""
    forms = {".6g": judgment.threshold, ".1f": judgment.percentile, ".4g": judgment.p_value}
    texts = [format(value, form) if math.isfinite(value) else "" for form, value in forms.items()]
    return [judgment.view, *texts, judgment.not_judged]


def described_image(header: Dataset, patient_identifiers: bool = False) -> dict[str, str]:
    """What the work-list shows of a DICOM header, as a spreadsheet may show it; empty texts for other files."""
    elements = {**UIDS, **(IDENTIFIERS if patient_identifiers else {})}
    texts = {name: str(header.get(keyword) or "") for name, keyword in elements.items()}
    texts["other_view"] = other_than_frontal_chest(header)
    groups = header_groups(header)
    texts |= {name: groups[name] for name in GROUPS}
    return {name: harmless(text) for name, text in texts.items()}


def write_worklist(
    scores: str | os.PathLike,
    path: str | os.PathLike,
    described: Mapping[str, Mapping[str, str]],
) -> pd.DataFrame:
    """
    Sort the table of scores, and say of each image where it is and, of DICOM files, what it is.

    Args:
        scores: CSV table with the columns "image", "fused", "abnormal" ("1", "0", or "" without a threshold),
            "hottest", "lung_zone", and those of ``JUDGMENT_COLUMNS``.
        path: the work-list, without the columns that are empty.
        described: name in the table -> :func:`described_image` of its file; images without one have empty cells.

    Returns:
        The work-list with all columns, of texts but for "rank" from 1.
    """
    table = pd.read_csv(scores, dtype=str, keep_default_na=False, encoding_errors="replace")
    table = most_suspicious_first(table)
    is_discovery = discoveries(pd.to_numeric(table["p_value"]), _FALSE_DISCOVERY_RATE)
    ranked = pd.DataFrame(
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
            "image": table["image"].map(harmless),
        }
    )
    headers = [described.get(image, {}) for image in table["image"]]
    columns = list(next(filter(None, headers), described_image(Dataset())))
    texts = pd.DataFrame(headers, ranked.index, columns, dtype=object).fillna("")
    worklist = pd.concat([ranked, texts, table["seen_view"]], axis=1)
    shown = [name for name in worklist if name in ("rank", "score") or worklist[name].any()]
    with atomic_path(path) as temporary:
        worklist[shown].to_csv(
            temporary, index=False, lineterminator="\r\n", encoding="utf-8", errors="replace"
        )
    return worklist


def most_suspicious_first(table: pd.DataFrame) -> pd.DataFrame:
    """
    Order images for reading: the smallest p-value first, of equal ones the highest score.

    Scores of images with different normal images, such as AP and PA ones, do not compare; their p-values do. Where no
    image has a p-value, the score alone decides. Images that are not judged come last, by score.
    """
    keys = pd.DataFrame(
        {
            "unjudged": table["not_judged"] != "",
            "p_value": pd.to_numeric(table["p_value"]),
            "falling_score": -table["fused"].astype(float),
        }
    )
    order = keys.sort_values(list(keys), kind="stable").index
    return table.loc[order].reset_index(drop=True)


def summary(worklist: pd.DataFrame, comparison: str = "") -> str:
    """How many images of a work-list are above the threshold, not judged, and no frontal chest radiographs."""
    unjudged = worklist.loc[worklist["not_judged"] != "", "not_judged"]
    above = int((worklist["decision"] == "above").sum())
    parts = [f"{above} of {len(worklist) - len(unjudged)} above the threshold"]
    if not worklist["decision"].any():
        parts = [f"{counted(len(worklist), 'image')} by score, without a threshold"]
    if worklist["p_value"].any():
        found, rate = (worklist["discovery"] != "").sum(), 100 * _FALSE_DISCOVERY_RATE
        parts.append(f"{found} at a false discovery rate of {rate:.0f} %")
    if len(unjudged):
        parts.append(f"{len(unjudged)} not judged: {_in_words(unjudged)}")
    if comparison:
        parts.append(comparison)
    if others := int((worklist["other_view"] != "").sum()):
        one, many = "is no frontal chest radiograph", "are no frontal chest radiographs"
        parts.append(f"{counted(others, one, many)} by the header (column other_view)")
    return "; ".join(parts)


def _in_words(reasons: pd.Series) -> str:
    """Reasons and how often they occur, the most frequent first; the ages of children are counted together."""
    if len(set(reasons)) == 1:
        return reasons.iloc[0]
    kinds = Counter(reason.partition(" (")[0] for reason in reasons)
    return ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
