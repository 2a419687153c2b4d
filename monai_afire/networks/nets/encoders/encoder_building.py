# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders by their names."""

from __future__ import annotations

from typing import Any

from torch import nn

from monai_afire.networks.nets.encoders.adapting import as_encoder
from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import EfficientNetLiteEncoder
from monai_afire.networks.nets.encoders.hugging_face_encoder import HuggingFaceEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.residual_encoder import ResidualEncoder
from monai_afire.networks.nets.encoders.timm_encoder import TimmEncoder

# adapter of a library, and whether its weights are loaded where the name does not say so
LIBRARIES: dict[str, tuple[Any, bool]] = {
    "hub": (HuggingFaceEncoder, True),
    "timm": (TimmEncoder, False),
}
VIT = "vit"  # of the sizes that a bundle's options give
RESIDUAL = "residual"  # MONAI's ResNet, narrow enough for a CPU
IMAGENET = "imagenet"  # EfficientNet-Lite0 with its weights
OWN_NAMES = (VIT, RESIDUAL, IMAGENET)
_WEIGHTS = {"pretrained": True, "random": False}


def is_encoder_name(text: object) -> bool:
    """Whether something names an encoder of another library, "hub:..." or "timm:...", rather than a file."""
    return isinstance(text, str) and text.partition(":")[0] in LIBRARIES and ":" in text


def library_encoder(
    text: str,
    img_size: tuple[int, ...] | None = None,
    in_channels: int = 1,
    pretrained: bool = True,
) -> RadiographEncoder:
    """
    Build the encoder of another library that a name stands for.

    Args:
        text: "hub:FOLDER", "hub:OWNER/NAME" or "timm:NAME", as for :func:`build_encoder`.
        img_size: spatial size of the images in pixels; None for the model's.
        in_channels: channels of the images.
        pretrained: False for random weights whatever the name says.
    """
    library, _, model = text.partition(":")
    adapter, has_weights = LIBRARIES.get(library, (None, False))
    name, _, ending = model.rpartition(":")
    if ending in _WEIGHTS:
        model, has_weights = name, _WEIGHTS[ending]
    if adapter is None or not model:
        raise ValueError(
            f"encoder {text!r} names no encoder: give hub:FOLDER, hub:OWNER/NAME or timm:NAME, with :pretrained or "
            f":random behind it, {', '.join(OWN_NAMES)}, or null for the bundle's own"
        )
    return adapter(model, img_size, in_channels, pretrained=has_weights and pretrained)


def build_encoder(
    encoder: str | nn.Module | None, own: RadiographEncoder, pretrained: bool = True
) -> RadiographEncoder:
    """
    Choose between a bundle's own encoder and another one for the same images and patches.

    Args:
        encoder: None or "vit" for ``own``; "residual" for a :class:`monai_afire.networks.ResidualEncoder` with one
            block of each of the widths 32, 64, 128 and 256; "imagenet" for a
            :class:`monai_afire.networks.EfficientNetLiteEncoder` with ImageNet's weights (extra ``imagenet``), whose
            patches have 32 pixels. "hub:FOLDER" or "hub:OWNER/NAME" for a model of Hugging Face, with its weights
            unless ":random" follows; "timm:NAME" for one of timm, with random weights unless ":pretrained" follows. Or
            an encoder, or a network of MONAI, transformers or timm, see :func:`monai_afire.networks.as_encoder`.
        own: the bundle's ViT.
        pretrained: False for random weights whatever the name says, where others are to be loaded.

    Returns:
        The encoder.

    Raises:
        ImportError: when the library or the weights of the encoder are not installed.
        TypeError: for a network that is no encoder.
        ValueError: when the name means nothing, the model cannot be built, or its channels, image or patch size are not
            those of ``own``: images are loaded and crops are cut by them.
    """
    if encoder is None or encoder == VIT:
        return own
    if isinstance(encoder, nn.Module):
        built = as_encoder(encoder, own.img_size)
    elif encoder == RESIDUAL:
        size, patch = own.img_size, own.patch_size[0]
        built = ResidualEncoder(own.in_channels, size, patch, 256, depths=(1, 1, 1, 1))
    elif encoder == IMAGENET:
        built = EfficientNetLiteEncoder(own.in_channels, own.img_size, pretrained)
    else:
        built = library_encoder(encoder, own.img_size, own.in_channels, pretrained)
    if built.in_channels != own.in_channels:
        raise ValueError(
            f"the encoder takes {built.in_channels} channels, and the images have {own.in_channels}"
        )
    for option, attribute in (("image_size", "img_size"), ("patch_size", "patch_size")):
        given, needed = getattr(own, attribute), getattr(built, attribute)
        if given != needed:
            raise ValueError(
                f"{option} is {given}, and the encoder's is {needed}: set {option} to {needed[0]}"
            )
    return built
