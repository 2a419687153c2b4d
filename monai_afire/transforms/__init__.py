# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Transforms in MONAI's pairs of array and dictionary: loading, lesion synthesis, grid crops, patch distortions."""

from __future__ import annotations

from monai_afire.transforms.appearance_distortion import (
    RandAppearanceDistortion,
    RandAppearanceDistortiond,
)
from monai_afire.transforms.byol_augmentation import byol_augmentation
from monai_afire.transforms.contrast_standardization import (
    StandardizeContrast,
    StandardizeContrastd,
)
from monai_afire.transforms.controlled_lesions import AddControlledLesiond
from monai_afire.transforms.grid_crop import (
    GRID_CROP_SETTINGS,
    GridCropPair,
    GridCropPaird,
    ResizeToCover,
    ResizeToCoverd,
    matching_patches,
    overlap_masks,
)
from monai_afire.transforms.label_vector import LabelVector, LabelVectord
from monai_afire.transforms.landmark_heatmap import LandmarkHeatmap, LandmarkHeatmapd
from monai_afire.transforms.lesion_synthesis.pasting import (
    AnatPaste,
    AnatPasted,
    CutPaste,
    CutPasted,
)
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import (
    SynthLesionMask,
    SynthLesionMaskd,
    synth_lesion_masks,
)
from monai_afire.transforms.mask_loading import LoadMasks, LoadMasksd
from monai_afire.transforms.multi_crop import RandMultiCrop, RandMultiCropd
from monai_afire.transforms.network_input import fit_images, input_shape, select_tensors
from monai_afire.transforms.patch_masking import RandVisiblePatches, RandVisiblePatchesd
from monai_afire.transforms.patch_shuffle import RandPatchShuffle, RandPatchShuffled
from monai_afire.transforms.radiograph import LoadRadiograph, LoadRadiographd
from monai_afire.transforms.radiograph_description import DescribeRadiographd
from monai_afire.transforms.radiograph_files import RadiographError, RadiographWarning

__all__ = [
    "AddControlledLesiond",
    "AnatPaste",
    "AnatPasted",
    "CutPaste",
    "CutPasted",
    "DescribeRadiographd",
    "GRID_CROP_SETTINGS",
    "GridCropPair",
    "GridCropPaird",
    "LabelVector",
    "LabelVectord",
    "LandmarkHeatmap",
    "LandmarkHeatmapd",
    "LoadMasks",
    "LoadMasksd",
    "LoadRadiograph",
    "LoadRadiographd",
    "RadiographError",
    "RadiographWarning",
    "RandAppearanceDistortion",
    "RandAppearanceDistortiond",
    "RandMultiCrop",
    "RandMultiCropd",
    "RandPatchShuffle",
    "RandPatchShuffled",
    "RandVisiblePatches",
    "RandVisiblePatchesd",
    "ResizeToCover",
    "ResizeToCoverd",
    "StandardizeContrast",
    "StandardizeContrastd",
    "SynthLesionMask",
    "SynthLesionMaskd",
    "byol_augmentation",
    "fit_images",
    "input_shape",
    "matching_patches",
    "overlap_masks",
    "select_tensors",
    "synth_lesion_masks",
]
