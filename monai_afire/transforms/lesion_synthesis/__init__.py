# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Synthetic lesions in normal images: AFiRe's Synthetic Lesion Masks and the pasting methods it is compared with."""

from __future__ import annotations

from monai_afire.transforms.lesion_synthesis.anat_paste import AnatPaste, segment_lungs
from monai_afire.transforms.lesion_synthesis.array import LesionVariants, SynthLesionMask
from monai_afire.transforms.lesion_synthesis.batched import add_lesion_maps, render_lesion_maps, synth_lesion_masks
from monai_afire.transforms.lesion_synthesis.cut_paste import CutPaste
from monai_afire.transforms.lesion_synthesis.dictionary import (
    AnatPasteD,
    AnatPasted,
    AnatPasteDict,
    CutPasteD,
    CutPasted,
    CutPasteDict,
    LesionVariantsD,
    LesionVariantsd,
    LesionVariantsDict,
    SynthLesionMaskD,
    SynthLesionMaskd,
    SynthLesionMaskDict,
)
from monai_afire.transforms.lesion_synthesis.otsu import otsu_threshold
from monai_afire.transforms.lesion_synthesis.parameters import (
    LesionParameters,
    LesionSettings,
    draw_lesion_parameters,
    num_lesion_uniforms,
)

__all__ = [
    "synth_lesion_masks",
    "LesionParameters",
    "LesionSettings",
    "draw_lesion_parameters",
    "num_lesion_uniforms",
    "render_lesion_maps",
    "add_lesion_maps",
    "otsu_threshold",
    "segment_lungs",
    "LesionVariants",
    "SynthLesionMask",
    "AnatPaste",
    "CutPaste",
    "LesionVariantsd",
    "LesionVariantsD",
    "LesionVariantsDict",
    "SynthLesionMaskd",
    "SynthLesionMaskD",
    "SynthLesionMaskDict",
    "AnatPasted",
    "AnatPasteD",
    "AnatPasteDict",
    "CutPasted",
    "CutPasteD",
    "CutPasteDict",
]
