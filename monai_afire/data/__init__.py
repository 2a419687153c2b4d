# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Data: datalists, caches, loaders, and what headers say."""

from __future__ import annotations

from monai_afire.data.cache import DiskCachedDataset, cached_dataset
from monai_afire.data.datalist import (
    DatalistError,
    abnormal_label,
    bundle_items,
    check_label_table,
    class_names,
    cross_validation_items,
    few_shots,
    image_kind,
    indexed_images,
    item_patients,
    label_subset,
    labeled_items,
    load_radiograph_datalist,
    normal_items,
    patient_of,
    save_class_names,
    saved_class_names,
    scan_radiographs,
    split_by_patient,
)
from monai_afire.data.loaders import TrainingLoader, loader_like
from monai_afire.data.samplers import DistributedRandomSampler, training_sampler

__all__ = [
    "DatalistError",
    "DiskCachedDataset",
    "DistributedRandomSampler",
    "TrainingLoader",
    "abnormal_label",
    "bundle_items",
    "cached_dataset",
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
    "loader_like",
    "normal_items",
    "patient_of",
    "save_class_names",
    "saved_class_names",
    "scan_radiographs",
    "split_by_patient",
    "training_sampler",
]
