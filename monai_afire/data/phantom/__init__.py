# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Chest phantom: procedurally drawn chest radiographs with complete ground truth, the embedded data set."""

from __future__ import annotations

from monai_afire.data.phantom.anatomy import LANDMARK_NAMES, ORGAN_NAMES, Patient
from monai_afire.data.phantom.lesions import LESION_KINDS, Lesion
from monai_afire.data.phantom.phantom import ChestPhantom, draw_chest_phantom
from monai_afire.data.phantom.phantom_dataset import ChestPhantomDataset
from monai_afire.data.phantom.phantom_files import export_phantom
from monai_afire.data.phantom.phantom_set import PhantomSet

__all__ = [
    "LANDMARK_NAMES",
    "LESION_KINDS",
    "ORGAN_NAMES",
    "ChestPhantom",
    "ChestPhantomDataset",
    "Lesion",
    "Patient",
    "PhantomSet",
    "draw_chest_phantom",
    "export_phantom",
]
