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
from monai_afire.apps.results.report_text import format_number, table_lines
from monai_afire.data.datalist.patients import item_patients
from monai_afire.transforms.radiograph_header import GROUP_ELEMENTS, header_groups, header_of
from monai_afire.utils.text import counted, known_text

_TOO_FEW = "too few"


def item_groups(item: Mapping[str, Any]) -> dict[str, str]:
    """Sex ("F", "M" or "O"), age in years, view and manufacturer, from the item or its DICOM header; "" for unknown."""
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
    """
    first: dict[str, str] = {}
    return [
        known_text(item.get("patient_id")) or first.setdefault(patient, str(item["image"]))
        for item, patient in zip(items, item_patients(items), strict=True)
    ]


def few_patients_lines(num_patients: int) -> list[str]:
    """What a small number of patients means for intervals over them: one line, or none where the intervals hold."""
    if num_patients == 1:
        return ["all images are of 1 patient: nothing is known of others, so there is no interval"]
    if num_patients >= LEAST_PATIENTS:
        return []
    found = counted(num_patients, "patient")
    return [f"{found}: intervals over fewer than {LEAST_PATIENTS} are too narrow"]


def subgroup_lines(subgroups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """A line per group of ``subgroup_metrics``, and the properties that are not known of any image."""
    absent = [name for name, groups in subgroups.items() if set(groups) == {UNKNOWN_GROUP}]
    rows = {
        f"{name} {group}": {"images": entry["images"], **_cells(entry)}
        for name, groups in subgroups.items()
        for group, entry in groups.items()
        if name not in absent
    }
    lines = []
    if rows:
        title = "means over the findings that a group has enough images of, 95 % intervals over patients"
        lines += [title, *table_lines(rows)]
    if any(_TOO_FEW in row.values() for row in rows.values()):
        fewest = f"{FEWEST_IMAGES} images with it and {FEWEST_IMAGES} without"
        lines.append(f"{_TOO_FEW}: no finding has {fewest}")
    if absent:
        lines.append(f"not known of any image: {', '.join(absent)}")
    return lines


def _cells(entry: Mapping[str, Any]) -> dict[str, object]:
    """Metrics of a group as text, with their intervals."""
    if "auc" not in entry:
        return {}
    if format_number(entry["auc"]) == "n/a":
        return {"auc": _TOO_FEW}
    cells: dict[str, object] = {"findings": entry["num_classes"]}
    for name in GROUP_METRICS:
        interval = "-".join(map(format_number, entry.get(f"{name}_interval", ())))
        cells[name] = format_number(entry[name]) + (f" ({interval})" if interval else "")
    return cells
