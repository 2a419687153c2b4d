# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Groups of patients in the reports: read from the list or a DICOM header, and printed with what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monai_afire.apps.evaluation.metrics import (
    FEWEST_IMAGES,
    GROUP_METRICS,
    PROPERTIES,
    UNKNOWN_GROUP,
)
from monai_afire.apps.evaluation.patient_bootstrap import LEAST_PATIENTS
from monai_afire.apps.intake.dicom_header import GROUP_ELEMENTS, header_groups, header_of
from monai_afire.apps.results.report_text import format_number, table_lines
from monai_afire.data.datalist.patients import item_patients
from monai_afire.utils.text import counted, known_text

_TOO_FEW = "too few"


def item_groups(item: Mapping[str, Any]) -> dict[str, str]:
    """
    Sex, age in years, view and manufacturer of an image, from its item or else its DICOM header.

    Args:
        item: of a datalist.

    Returns:
        "sex" ("F", "M" or "O"), "age", "view" and "manufacturer"; "" where it is not known.

    Example:
        >>> item_groups({"image": "a.png", "sex": "female", "age": 57, "view": "pa"})
        {'sex': 'F', 'age': '57', 'view': 'PA', 'manufacturer': ''}
    """
    told = {name: known_text(item.get(name)) for name in PROPERTIES}
    if not all(told.values()):
        header = header_groups(header_of(str(item["image"]), GROUP_ELEMENTS))
        told = {name: value or header[name] for name, value in told.items()}
    sex, age = told["sex"][:1].upper(), told["age"].rstrip("Yy").lstrip("0") or told["age"][:1]
    return told | {
        "sex": sex if sex in ("F", "M", "O") else "",
        "age": age,
        "view": told["view"].upper(),
    }


def reported_patients(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """
    Patient of each item for a table: as the list says, else the patient's first image.

    Patients are told apart as for splits, by names of files and DICOM headers, whose identities stay out of tables.

    Args:
        items: of a datalist.

    Returns:
        One per item.

    Example:
        >>> reported_patients([{"image": "00000013_004.png"}, {"image": "00000013_005.png"}, {"image": "a.png"}])
        ['00000013_004.png', '00000013_004.png', 'a.png']
    """
    first: dict[str, str] = {}
    return [
        known_text(item.get("patient_id")) or first.setdefault(patient, str(item["image"]))
        for item, patient in zip(items, item_patients(items), strict=True)
    ]


def few_patients_lines(num_patients: int) -> list[str]:
    """
    What a small number of patients means for intervals over them.

    Args:
        num_patients: of all images.

    Returns:
        One line, or none where the intervals hold.

    Example:
        >>> few_patients_lines(12), few_patients_lines(100)
        (['12 patients: intervals over fewer than 30 are too narrow'], [])
    """
    if num_patients == 1:
        return ["all images are of 1 patient: nothing is known of others, so there is no interval"]
    if num_patients >= LEAST_PATIENTS:
        return []
    found = counted(num_patients, "patient")
    return [f"{found}: intervals over fewer than {LEAST_PATIENTS} are too narrow"]


def subgroup_lines(subgroups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """
    A table with a line per group, and the properties that are not known of any image.

    Args:
        subgroups: of ``subgroup_metrics``.

    Returns:
        The lines to print.

    Example:
        >>> for line in subgroup_lines({"sex": {"F": {"images": 3, "auc": None}}, "age": {"unknown": {"images": 3}}}):
        ...     print(line)
        means over the findings that a group has enough images of, 95 % intervals over patients
              images      auc
        sex F      3  too few
        too few: no finding has 10 images with it and 10 without
        not known of any image: age
    """
    rows: dict[str, dict[str, object]] = {}
    absent = [name for name, groups in subgroups.items() if set(groups) == {UNKNOWN_GROUP}]
    for name, groups in subgroups.items():
        if name in absent:
            continue
        for group, entry in groups.items():
            rows[f"{name} {group}"] = {"images": entry["images"], **_cells(entry)}
    title = (
        "means over the findings that a group has enough images of, 95 % intervals over patients"
    )
    lines = [title, *table_lines(rows)] if rows else []
    if any(_TOO_FEW in row.values() for row in rows.values()):
        lines.append(
            f"{_TOO_FEW}: no finding has {FEWEST_IMAGES} images with it and {FEWEST_IMAGES} without"
        )
    return [*lines, f"not known of any image: {', '.join(absent)}"] if absent else lines


def _cells(entry: Mapping[str, Any]) -> dict[str, object]:
    """Metrics of a group as text, with their intervals."""
    if "auc" not in entry:
        return {}
    if format_number(entry["auc"]) == "n/a":
        return {"auc": _TOO_FEW}
    limits = {name: map(format_number, entry.get(f"{name}_interval", ())) for name in GROUP_METRICS}
    texts = {
        name: f"{format_number(entry[name])} ({'-'.join(limits[name])})".removesuffix(" ()")
        for name in limits
    }
    return {"findings": entry["num_classes"], **texts}
