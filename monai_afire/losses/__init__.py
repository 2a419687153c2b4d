# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Losses: one file per method, one small class per term."""

from __future__ import annotations

from monai_afire.losses.ace import (
    ACELoss,
    MatchingLoss,
    composition_alpha,
    decomposition_alpha,
    matching_target,
)
from monai_afire.losses.afire import (
    AFiReLoss,
    AnomalyRestorationLoss,
    CategoryConsistencyLoss,
    StructureConsistencyLoss,
)
from monai_afire.losses.classification import (
    MaskedMulticlassLoss,
    MaskedMultilabelLoss,
    classification_loss,
)
from monai_afire.losses.composite_loss import CompositeLoss, LossTerm
from monai_afire.losses.dino import DINOLoss, MultiCropCrossEntropy
from monai_afire.losses.global_mean import global_mean
from monai_afire.losses.heatmap import HeatmapLoss
from monai_afire.losses.mae import MAELoss, MaskedReconstructionLoss
from monai_afire.losses.peac import (
    AppearanceRestorationLoss,
    GlobalConsistencyLoss,
    LocalConsistencyLoss,
    OrderClassificationLoss,
    PEACLoss,
)

__all__ = [
    "ACELoss",
    "AFiReLoss",
    "AnomalyRestorationLoss",
    "AppearanceRestorationLoss",
    "CategoryConsistencyLoss",
    "CompositeLoss",
    "DINOLoss",
    "GlobalConsistencyLoss",
    "HeatmapLoss",
    "LocalConsistencyLoss",
    "LossTerm",
    "MAELoss",
    "MaskedMulticlassLoss",
    "MaskedMultilabelLoss",
    "MaskedReconstructionLoss",
    "MatchingLoss",
    "MultiCropCrossEntropy",
    "OrderClassificationLoss",
    "PEACLoss",
    "StructureConsistencyLoss",
    "classification_loss",
    "composition_alpha",
    "decomposition_alpha",
    "global_mean",
    "matching_target",
]
