# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Transforms in MONAI's pairs of array and dictionary: loading, lesion synthesis, grid crops, patch distortions."""

from __future__ import annotations

from monai_afire.transforms.appearance_distortion import (
    DistortAppearance,
    DistortAppearanceD,
    DistortAppearanced,
    DistortAppearanceDict,
)
from monai_afire.transforms.contrast_standardization import (
    StandardizeContrast,
    StandardizeContrastD,
    StandardizeContrastd,
    StandardizeContrastDict,
)
from monai_afire.transforms.controlled_lesions import (
    AddControlledLesionD,
    AddControlledLesiond,
    AddControlledLesionDict,
    SoftNodule,
)
from monai_afire.transforms.grid_crop import (
    GRID_CROP_SETTINGS,
    GridCropPair,
    GridCropPairD,
    GridCropPaird,
    GridCropPairDict,
    ResizeToCover,
    ResizeToCoverD,
    ResizeToCoverd,
    ResizeToCoverDict,
    matching_patches,
    overlap_masks,
)
from monai_afire.transforms.image_fitting import fit_images, input_shape
from monai_afire.transforms.label_vector import (
    LabelVector,
    LabelVectorD,
    LabelVectord,
    LabelVectorDict,
)
from monai_afire.transforms.landmark_heatmap import (
    LandmarkHeatmap,
    LandmarkHeatmapD,
    LandmarkHeatmapd,
    LandmarkHeatmapDict,
)
from monai_afire.transforms.lesion_synthesis.pasting import (
    AnatPaste,
    AnatPasteD,
    AnatPasted,
    AnatPasteDict,
    CutPaste,
    CutPasteD,
    CutPasted,
    CutPasteDict,
)
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import (
    SynthLesionMask,
    SynthLesionMaskD,
    SynthLesionMaskd,
    SynthLesionMaskDict,
    synth_lesion_masks,
)
from monai_afire.transforms.mask_loading import LoadMasks, LoadMasksD, LoadMasksd, LoadMasksDict
from monai_afire.transforms.multi_crop import MultiCrop, MultiCropD, MultiCropd, MultiCropDict
from monai_afire.transforms.patch_distortion import (
    ShufflePatches,
    ShufflePatchesD,
    ShufflePatchesd,
    ShufflePatchesDict,
)
from monai_afire.transforms.patch_masking import (
    RandVisiblePatches,
    RandVisiblePatchesD,
    RandVisiblePatchesd,
    RandVisiblePatchesDict,
)
from monai_afire.transforms.radiograph import (
    LoadRadiograph,
    LoadRadiographD,
    LoadRadiographd,
    LoadRadiographDict,
)
from monai_afire.transforms.radiograph_description import (
    DescribeRadiographD,
    DescribeRadiographd,
    DescribeRadiographDict,
)
from monai_afire.transforms.radiograph_files import RadiographError, RadiographWarning
from monai_afire.transforms.random_views import random_views
from monai_afire.transforms.tensor_selection import select_tensors

__all__ = [
    "AddControlledLesionD",
    "AddControlledLesionDict",
    "AddControlledLesiond",
    "AnatPaste",
    "AnatPasteD",
    "AnatPasteDict",
    "AnatPasted",
    "CutPaste",
    "CutPasteD",
    "CutPasteDict",
    "CutPasted",
    "DescribeRadiographD",
    "DescribeRadiographDict",
    "DescribeRadiographd",
    "DistortAppearance",
    "DistortAppearanceD",
    "DistortAppearanceDict",
    "DistortAppearanced",
    "GRID_CROP_SETTINGS",
    "GridCropPair",
    "GridCropPairD",
    "GridCropPairDict",
    "GridCropPaird",
    "LabelVector",
    "LabelVectorD",
    "LabelVectorDict",
    "LabelVectord",
    "LandmarkHeatmap",
    "LandmarkHeatmapD",
    "LandmarkHeatmapDict",
    "LandmarkHeatmapd",
    "LoadMasks",
    "LoadMasksD",
    "LoadMasksDict",
    "LoadMasksd",
    "LoadRadiograph",
    "LoadRadiographD",
    "LoadRadiographDict",
    "LoadRadiographd",
    "MultiCrop",
    "MultiCropD",
    "MultiCropDict",
    "MultiCropd",
    "RadiographError",
    "RadiographWarning",
    "RandVisiblePatches",
    "RandVisiblePatchesD",
    "RandVisiblePatchesDict",
    "RandVisiblePatchesd",
    "ResizeToCover",
    "ResizeToCoverD",
    "ResizeToCoverDict",
    "ResizeToCoverd",
    "ShufflePatches",
    "ShufflePatchesD",
    "ShufflePatchesDict",
    "ShufflePatchesd",
    "SoftNodule",
    "StandardizeContrast",
    "StandardizeContrastD",
    "StandardizeContrastDict",
    "StandardizeContrastd",
    "SynthLesionMask",
    "SynthLesionMaskD",
    "SynthLesionMaskDict",
    "SynthLesionMaskd",
    "fit_images",
    "input_shape",
    "matching_patches",
    "overlap_masks",
    "random_views",
    "select_tensors",
    "synth_lesion_masks",
]
