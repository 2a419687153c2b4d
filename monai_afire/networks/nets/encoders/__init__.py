# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders of other libraries behind the interface of this package's own."""

from __future__ import annotations

from monai_afire.networks.nets.encoders.adapted_encoder import AdaptedEncoder
from monai_afire.networks.nets.encoders.encoder_building import (
    EncoderName,
    as_encoder,
    build_encoder,
    is_encoder_name,
    missing_parts,
    parse_encoder_name,
)
from monai_afire.networks.nets.encoders.hugging_face_encoder import HuggingFaceEncoder
from monai_afire.networks.nets.encoders.monai_encoder import MONAIEncoder
from monai_afire.networks.nets.encoders.timm_encoder import TimmEncoder

__all__ = [
    "AdaptedEncoder",
    "EncoderName",
    "HuggingFaceEncoder",
    "MONAIEncoder",
    "TimmEncoder",
    "as_encoder",
    "build_encoder",
    "is_encoder_name",
    "missing_parts",
    "parse_encoder_name",
]
