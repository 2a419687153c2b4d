# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The encoder that a bundle is told to take: its own, or one of another library."""

from __future__ import annotations

from torch import nn

from monai_afire.networks.nets.encoders.hugging_face_encoder import HuggingFaceEncoder
from monai_afire.networks.nets.encoders.interface import as_encoder
from monai_afire.networks.nets.encoders.name import parse_encoder_name
from monai_afire.networks.nets.encoders.timm_encoder import TimmEncoder
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["build_encoder"]


def build_encoder(
    encoder: str | nn.Module | None, own: RadiographEncoder, pretrained: bool = True
) -> RadiographEncoder:
    """
    Choose between a bundle's own encoder and one of another library for the same images and patches.

    Args:
        encoder: None for ``own``. "hub:FOLDER" or "hub:OWNER/NAME" for a model of Hugging Face, with its weights unless
            ":random" follows; "timm:NAME" for one of timm, with random weights unless ":pretrained" follows. Or an
            encoder, or a network of MONAI, transformers or timm, see :func:`monai_afire.networks.as_encoder`.
        own: the bundle's encoder.
        pretrained: False for random weights whatever the name says, where others are to be loaded.

    Returns:
        The encoder.

    Raises:
        TypeError: for a network that is no encoder.
        ValueError: when the name means nothing, the model cannot be built, or its channels, image or patch size are not
            those of ``own``: images are loaded and crops are cut by them.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> own = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> build_encoder(None, own) is own
        True
        >>> build_encoder("dinov2", own)
        Traceback (most recent call last):
        ValueError: encoder 'dinov2' names no encoder: give hub:FOLDER, hub:OWNER/NAME or timm:NAME, ...
    """
    if encoder is None:
        return own
    if isinstance(encoder, nn.Module):
        built = as_encoder(encoder, own.img_size)
    else:
        name = parse_encoder_name(encoder)
        if len(own.img_size) != 2:
            raise ValueError(
                f"encoder {encoder!r} takes pictures, and the images have {len(own.img_size)} axes: leave the encoder "
                "out, or spatial_dims"
            )
        adapter = {"hub": HuggingFaceEncoder, "timm": TimmEncoder}[name.library]
        built = adapter(name.model, own.img_size, own.in_channels, pretrained=name.pretrained and pretrained)
    for option, attribute in (("image_size", "img_size"), ("patch_size", "patch_size")):
        given, needed = getattr(own, attribute), getattr(built, attribute)
        if given != needed:
            raise ValueError(f"{option} is {given}, and the encoder's is {needed}: give --{option} {needed[0]}")
    if built.in_channels != own.in_channels:
        raise ValueError(
            f"the encoder takes {built.in_channels} channels, and the images have {own.in_channels}: build it for these"
        )
    return built
