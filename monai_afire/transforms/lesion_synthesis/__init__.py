# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Synthetic lesions in normal images: AFiRe's Synthetic Lesion Masks and the pasting methods it is compared with."""

from __future__ import annotations

from monai_afire.transforms.lesion_synthesis.anat_paste import (
    AnatPaste,
    AnatPasteD,
    AnatPasted,
    AnatPasteDict,
    RandAnatPaste,
    RandAnatPasteD,
    RandAnatPasted,
    RandAnatPasteDict,
    segment_lungs,
)
from monai_afire.transforms.lesion_synthesis.batched import (
    add_lesion_maps,
    render_lesion_maps,
    synth_lesion_masks,
)
from monai_afire.transforms.lesion_synthesis.cut_paste import (
    CutPaste,
    CutPasteD,
    CutPasted,
    CutPasteDict,
    RandCutPaste,
    RandCutPasteD,
    RandCutPasted,
    RandCutPasteDict,
)
from monai_afire.transforms.lesion_synthesis.otsu import otsu_threshold
from monai_afire.transforms.lesion_synthesis.parameters import (
    LesionParameters,
    LesionSettings,
    draw_lesion_parameters,
    num_lesion_uniforms,
)
from monai_afire.transforms.lesion_synthesis.synth_lesion_mask import (
    RandSynthLesionMask,
    RandSynthLesionMaskD,
    RandSynthLesionMaskd,
    RandSynthLesionMaskDict,
    SynthLesionMask,
    SynthLesionMaskD,
    SynthLesionMaskd,
    SynthLesionMaskDict,
)
from monai_afire.transforms.lesion_synthesis.variants import (
    LesionVariants,
    LesionVariantsD,
    LesionVariantsd,
    LesionVariantsDict,
)

__all__ = [
    "AnatPaste",
    "AnatPasteD",
    "AnatPasteDict",
    "AnatPasted",
    "CutPaste",
    "CutPasteD",
    "CutPasteDict",
    "CutPasted",
    "LesionParameters",
    "LesionSettings",
    "LesionVariants",
    "LesionVariantsD",
    "LesionVariantsDict",
    "LesionVariantsd",
    "RandAnatPaste",
    "RandAnatPasteD",
    "RandAnatPasteDict",
    "RandAnatPasted",
    "RandCutPaste",
    "RandCutPasteD",
    "RandCutPasteDict",
    "RandCutPasted",
    "RandSynthLesionMask",
    "RandSynthLesionMaskD",
    "RandSynthLesionMaskDict",
    "RandSynthLesionMaskd",
    "SynthLesionMask",
    "SynthLesionMaskD",
    "SynthLesionMaskDict",
    "SynthLesionMaskd",
    "add_lesion_maps",
    "draw_lesion_parameters",
    "num_lesion_uniforms",
    "otsu_threshold",
    "render_lesion_maps",
    "segment_lungs",
    "synth_lesion_masks",
]
