# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Groups of patients in the reports: read from the list or a DICOM header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monai_afire.apps.evaluation.metrics import PROPERTIES
from monai_afire.data.datalist.patients import item_patients
from monai_afire.transforms.radiograph_header import GROUP_ELEMENTS, header_groups, header_of
from monai_afire.utils.text import known_text


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
