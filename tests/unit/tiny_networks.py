# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders that are as small as tests allow."""

from __future__ import annotations

from typing import Any

from monai_afire.networks import SwinEncoder, ViTEncoder


def tiny_vit(**changes: Any) -> ViTEncoder:
    """16 tokens of 24 features for images (1, 32, 32)."""
    sizes = {"img_size": 32, "patch_size": 8, "hidden_size": 24, "num_layers": 1, "num_heads": 2}
    return ViTEncoder(**(sizes | changes))


def tiny_swin(**changes: Any) -> SwinEncoder:
    """16 tokens of 16 features for images (1, 16, 16), in two stages."""
    sizes = {"img_size": 16, "patch_size": 2, "window_size": 4, "embed_dim": 8}
    return SwinEncoder(**(sizes | {"depths": (1, 1), "num_heads": (2, 2)} | changes))
