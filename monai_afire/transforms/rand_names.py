# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
The random transforms under names as MONAI gives them, with ``Rand`` in front: the same classes.

Crops and masked patches have no probability, as MONAI's random crops have none: without a draw there is no result.
"""

from __future__ import annotations

from monai_afire.transforms.appearance_distortion import DistortAppearance, DistortAppearanced
from monai_afire.transforms.controlled_lesions import SoftNodule
from monai_afire.transforms.grid_crop import GridCropPair, GridCropPaird
from monai_afire.transforms.lesion_synthesis import (
    AnatPaste,
    AnatPasted,
    CutPaste,
    CutPasted,
    SynthLesionMask,
    SynthLesionMaskd,
)
from monai_afire.transforms.multi_crop import MultiCrop, MultiCropd
from monai_afire.transforms.patch_distortion import ShufflePatches, ShufflePatchesd

__all__ = [
    "RandAnatPaste",
    "RandAnatPasteD",
    "RandAnatPasteDict",
    "RandAnatPasted",
    "RandCutPaste",
    "RandCutPasteD",
    "RandCutPasteDict",
    "RandCutPasted",
    "RandDistortAppearance",
    "RandDistortAppearanceD",
    "RandDistortAppearanceDict",
    "RandDistortAppearanced",
    "RandGridCropPair",
    "RandGridCropPairD",
    "RandGridCropPairDict",
    "RandGridCropPaird",
    "RandMultiCrop",
    "RandMultiCropD",
    "RandMultiCropDict",
    "RandMultiCropd",
    "RandShufflePatches",
    "RandShufflePatchesD",
    "RandShufflePatchesDict",
    "RandShufflePatchesd",
    "RandSoftNodule",
    "RandSynthLesionMask",
    "RandSynthLesionMaskD",
    "RandSynthLesionMaskDict",
    "RandSynthLesionMaskd",
]

RandAnatPaste = AnatPaste
RandAnatPasteD = RandAnatPasteDict = RandAnatPasted = AnatPasted
RandCutPaste = CutPaste
RandCutPasteD = RandCutPasteDict = RandCutPasted = CutPasted
RandDistortAppearance = DistortAppearance
RandDistortAppearanceD = RandDistortAppearanceDict = RandDistortAppearanced = DistortAppearanced
RandGridCropPair = GridCropPair
RandGridCropPairD = RandGridCropPairDict = RandGridCropPaird = GridCropPaird
RandMultiCrop = MultiCrop
RandMultiCropD = RandMultiCropDict = RandMultiCropd = MultiCropd
RandShufflePatches = ShufflePatches
RandShufflePatchesD = RandShufflePatchesDict = RandShufflePatchesd = ShufflePatchesd
RandSynthLesionMask = SynthLesionMask
RandSynthLesionMaskD = RandSynthLesionMaskDict = RandSynthLesionMaskd = SynthLesionMaskd
RandSoftNodule = SoftNodule
