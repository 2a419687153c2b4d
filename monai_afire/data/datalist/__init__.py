# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Datalists: read, checked, divided by patient, labeled; from files, folders or the phantom."""

from __future__ import annotations

from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.drawn_images import image_kind
from monai_afire.data.datalist.labeled_items import labeled_items
from monai_afire.data.datalist.labels import (
    abnormal_label,
    check_label_table,
    class_names,
    normal_items,
    save_class_names,
    saved_class_names,
)
from monai_afire.data.datalist.loading import bundle_items, indexed_images, load_radiograph_datalist
from monai_afire.data.datalist.patients import item_patients, patient_of, split_by_patient
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.data.datalist.subsets import cross_validation_items, few_shots, label_subset

__all__ = [
    "DatalistError",
    "abnormal_label",
    "bundle_items",
    "check_label_table",
    "class_names",
    "cross_validation_items",
    "few_shots",
    "image_kind",
    "indexed_images",
    "item_patients",
    "label_subset",
    "labeled_items",
    "load_radiograph_datalist",
    "normal_items",
    "patient_of",
    "save_class_names",
    "saved_class_names",
    "scan_radiographs",
    "split_by_patient",
]
