# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Building blocks of the networks."""

from __future__ import annotations

from monai_afire.networks.blocks.attention import (
    DeviceSelfAttention,
    prepare_transformer_blocks,
    through_blocks,
)
from monai_afire.networks.blocks.composition_heads import (
    Composer,
    Decomposer,
    gather_parts,
    spread_parts,
)
from monai_afire.networks.blocks.ema import TeacherNetwork, update_ema
from monai_afire.networks.blocks.feature_pyramid import (
    FeaturePyramid,
    MultiScaleNeck,
    PyramidPooling,
)
from monai_afire.networks.blocks.heads import (
    DistillationHead,
    PositionwiseLinear,
    ProjectionMLP,
    TokenProbabilityHead,
)
from monai_afire.networks.blocks.patches import (
    grid_size,
    patch_labels,
    patch_statistics,
    patchify,
    unpatchify,
)
from monai_afire.networks.blocks.prototype_bank import PrototypeBank
from monai_afire.networks.blocks.restoration_decoder import RestorationDecoder
from monai_afire.networks.blocks.sinkhorn import sinkhorn_knopp

__all__ = [
    "Composer",
    "Decomposer",
    "DeviceSelfAttention",
    "DistillationHead",
    "FeaturePyramid",
    "MultiScaleNeck",
    "PositionwiseLinear",
    "ProjectionMLP",
    "PrototypeBank",
    "PyramidPooling",
    "RestorationDecoder",
    "TeacherNetwork",
    "TokenProbabilityHead",
    "gather_parts",
    "grid_size",
    "update_ema",
    "patch_labels",
    "patch_statistics",
    "patchify",
    "prepare_transformer_blocks",
    "sinkhorn_knopp",
    "spread_parts",
    "through_blocks",
    "unpatchify",
]
