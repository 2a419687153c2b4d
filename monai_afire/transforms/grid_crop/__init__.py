# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pairs of overlapping crops on a common grid, and which of their patches show the same place (PEAC, ACE)."""

from __future__ import annotations

from monai_afire.transforms.grid_crop.correspondence import matching_patches, overlap_masks
from monai_afire.transforms.grid_crop.cover import (
    ResizeToCover,
    ResizeToCoverD,
    ResizeToCoverd,
    ResizeToCoverDict,
)
from monai_afire.transforms.grid_crop.pair import (
    GRID_CROP_SETTINGS,
    GridCropPair,
    GridCropPairD,
    GridCropPaird,
    GridCropPairDict,
    RandGridCropPair,
    RandGridCropPairD,
    RandGridCropPaird,
    RandGridCropPairDict,
)

__all__ = [
    "GRID_CROP_SETTINGS",
    "GridCropPair",
    "GridCropPaird",
    "GridCropPairD",
    "GridCropPairDict",
    "RandGridCropPair",
    "RandGridCropPaird",
    "RandGridCropPairD",
    "RandGridCropPairDict",
    "ResizeToCover",
    "ResizeToCoverd",
    "ResizeToCoverD",
    "ResizeToCoverDict",
    "overlap_masks",
    "matching_patches",
]
