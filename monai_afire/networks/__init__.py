# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Networks: ``blocks`` to build with, whole ``nets``, ``weights`` to load into them, ``export`` to other runtimes."""

from __future__ import annotations

from monai_afire.networks.blocks import (
    Composer,
    Decomposer,
    DeviceSelfAttention,
    FeaturePyramid,
    MultiScaleNeck,
    PositionwiseLinear,
    ProjectionMLP,
    PrototypeBank,
    PyramidPooling,
    RestorationDecoder,
    TokenProbabilityHead,
    gather_parts,
    grid_size,
    patch_labels,
    patchify,
    prepare_transformer_blocks,
    sinkhorn_knopp,
    spread_parts,
    unpatchify,
    update_ema,
)
from monai_afire.networks.export import export_network
from monai_afire.networks.nets import (
    ACE,
    PEAC,
    AFiRe,
    RadiographEncoder,
    SwinEncoder,
    TransferClassifier,
    TransferNetwork,
    UPerNet,
    ViTEncoder,
)
from monai_afire.networks.weights import LoadReport, export_encoder, load_encoder_weights, load_network

__all__ = [
    "ACE",
    "AFiRe",
    "Composer",
    "Decomposer",
    "DeviceSelfAttention",
    "FeaturePyramid",
    "LoadReport",
    "MultiScaleNeck",
    "PEAC",
    "PositionwiseLinear",
    "ProjectionMLP",
    "PrototypeBank",
    "PyramidPooling",
    "RadiographEncoder",
    "RestorationDecoder",
    "SwinEncoder",
    "TokenProbabilityHead",
    "TransferClassifier",
    "TransferNetwork",
    "UPerNet",
    "ViTEncoder",
    "export_encoder",
    "export_network",
    "gather_parts",
    "grid_size",
    "load_encoder_weights",
    "load_network",
    "patch_labels",
    "patchify",
    "prepare_transformer_blocks",
    "sinkhorn_knopp",
    "spread_parts",
    "unpatchify",
    "update_ema",
]
