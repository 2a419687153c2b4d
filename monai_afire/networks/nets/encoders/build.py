# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder that a bundle is told to take: its own, or one of another library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monai.utils import ensure_tuple_rep
from torch import nn

from monai_afire.networks.nets.encoders.hugging_face_encoder import HuggingFaceEncoder
from monai_afire.networks.nets.encoders.interface import as_encoder
from monai_afire.networks.nets.encoders.name import parse_encoder_name
from monai_afire.networks.nets.encoders.timm_encoder import TimmEncoder
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.vit_encoder import ViTEncoder

__all__ = ["build_encoder"]


def build_encoder(
    encoder: str | nn.Module | None = None,
    img_size: Sequence[int] | int = 224,
    patch_size: Sequence[int] | int = 16,
    in_channels: int = 1,
    pretrained: bool = True,
    **own: Any,
) -> RadiographEncoder:
    """
    Build the encoder of a bundle.

    Args:
        encoder: None for a :class:`monai_afire.networks.ViTEncoder` of the other settings. "hub:FOLDER" or
            "hub:OWNER/NAME" for a model of Hugging Face, with its weights unless ":random" follows; "timm:NAME" for one
            of timm, with random weights unless ":pretrained" follows. Or an encoder, or a network of MONAI,
            transformers or timm, see :func:`monai_afire.networks.as_encoder`.
        img_size: spatial size of the images in pixels.
        patch_size: pixels per token; of a foreign encoder it must be its own, since crops are cut by it.
        in_channels: channels of the images.
        pretrained: False for random weights whatever the name says, where others are to be loaded.
        own: further arguments of ``ViTEncoder``, which a foreign encoder does not need.

    Returns:
        The encoder.

    Raises:
        TypeError: for a network that is no encoder.
        ValueError: when the name means nothing, the model cannot be built, or its patch or image size is another one.

    Example:
        >>> build_encoder(None, img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2).grid_size
        (4, 4)
        >>> build_encoder("dinov2")
        Traceback (most recent call last):
        ValueError: encoder 'dinov2' names no encoder: give hub:FOLDER, hub:OWNER/NAME or timm:NAME, ...
    """
    if encoder is None:
        return ViTEncoder(in_channels, img_size, patch_size, **own)
    if isinstance(encoder, nn.Module):
        built = as_encoder(encoder, img_size)
    else:
        name = parse_encoder_name(encoder)
        adapter = {"hub": HuggingFaceEncoder, "timm": TimmEncoder}[name.library]
        built = adapter(name.model, img_size, in_channels, pretrained=name.pretrained and pretrained)
    dims = len(built.img_size)
    if built.img_size != ensure_tuple_rep(img_size, dims):
        raise ValueError(f"the encoder takes images of {built.img_size} pixels: give --image_size {built.img_size[0]}")
    if built.patch_size != ensure_tuple_rep(patch_size, dims):
        raise ValueError(
            f"the encoder's tokens are of {built.patch_size} pixels, and patch_size is {patch_size}: give --patch_size "
            f"{built.patch_size[0]}"
        )
    return built
