# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Data: datalists and their patients, caches, samplers, loaders."""

from __future__ import annotations

from monai_afire.data.cache.cached_dataset import cached_dataset
from monai_afire.data.cache.disk_cache import DiskCachedDataset
from monai_afire.data.datalist.class_names import class_names, saved_class_names
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.data.datalist.drawn_images import image_kind, usable_items
from monai_afire.data.datalist.labeled_items import labeled_items
from monai_afire.data.datalist.labels import normal_items
from monai_afire.data.datalist.loading import bundle_items, indexed_images, load_radiograph_datalist
from monai_afire.data.datalist.patients import split_by_patient
from monai_afire.data.datalist.scanning import scan_radiographs
from monai_afire.data.loaders import TrainingLoader, loader_like

__all__ = [
    "DatalistError",
    "DiskCachedDataset",
    "TrainingLoader",
    "bundle_items",
    "cached_dataset",
    "class_names",
    "image_kind",
    "indexed_images",
    "labeled_items",
    "load_radiograph_datalist",
    "loader_like",
    "normal_items",
    "saved_class_names",
    "scan_radiographs",
    "split_by_patient",
    "usable_items",
]
