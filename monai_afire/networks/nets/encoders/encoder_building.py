# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoders by their names and from networks of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from monai_afire.networks.nets.encoders.efficientnet_lite_encoder import EfficientNetLiteEncoder
from monai_afire.networks.nets.encoders.hugging_face_encoder import HuggingFaceEncoder
from monai_afire.networks.nets.encoders.monai_encoder import MONAI_NETWORKS, MONAIEncoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder
from monai_afire.networks.nets.encoders.residual_encoder import ResidualEncoder
from monai_afire.networks.nets.encoders.timm_encoder import TimmEncoder

# whether the library's weights are loaded where the name does not say so
LIBRARIES = {"hub": True, "timm": False}
VIT = "vit"  # of the sizes that a bundle's options give
RESIDUAL = "residual"  # MONAI's ResNet, narrow enough for a CPU
IMAGENET = "imagenet"  # EfficientNet-Lite0 with its weights
OWN_NAMES = (VIT, RESIDUAL, IMAGENET)
_WEIGHTS = {"pretrained": True, "random": False}


class EncoderName(NamedTuple):
    """A model of another library: "hub" or "timm", name or folder, and whether its weights are to be loaded."""

    library: str
    model: str
    pretrained: bool


def is_encoder_name(text: object) -> bool:
    """
    Whether something names an encoder of another library rather than a file.

    Example:
        >>> is_encoder_name("hub:facebook/dinov2-small"), is_encoder_name("model.pt")
        (True, False)
    """
    return isinstance(text, str) and text.partition(":")[0] in LIBRARIES and ":" in text


def parse_encoder_name(text: str) -> EncoderName:
    """
    Read ``LIBRARY:MODEL`` or ``LIBRARY:MODEL:pretrained`` or ``LIBRARY:MODEL:random``.

    Args:
        text: ``hub:`` with the name of a model on Hugging Face or a folder in its format, with its weights unless
            ``:random`` follows; ``timm:`` with the name of a model of timm, without weights unless ``:pretrained``
            follows.

    Returns:
        Its parts.

    Raises:
        ValueError: for another form.

    Example:
        >>> parse_encoder_name("timm:vit_small_patch16_224")
        EncoderName(library='timm', model='vit_small_patch16_224', pretrained=False)
        >>> parse_encoder_name("hub:/models/dinov2-small:random")
        EncoderName(library='hub', model='/models/dinov2-small', pretrained=False)
    """
    library, _, model = text.partition(":")
    head, _, weights = model.rpartition(":")
    pretrained = LIBRARIES.get(library, False)
    if weights in _WEIGHTS:
        model, pretrained = head, _WEIGHTS[weights]
    if library not in LIBRARIES or not model:
        raise ValueError(
            f"encoder {text!r} names no encoder: give hub:FOLDER, hub:OWNER/NAME or timm:NAME, with :pretrained or "
            f":random behind it, {', '.join(OWN_NAMES)}, or null for the bundle's own"
        )
    return EncoderName(library, model, pretrained)


def library_encoder(
    text: str,
    img_size: tuple[int, ...] | None = None,
    in_channels: int = 1,
    pretrained: bool = True,
) -> RadiographEncoder:
    """
    Build the encoder of another library that a name stands for.

    Args:
        text: see :func:`parse_encoder_name`.
        img_size: spatial size of the images in pixels; None for the model's.
        in_channels: channels of the images.
        pretrained: False for random weights whatever the name says.

    Returns:
        The encoder.

    Raises:
        ImportError: when the library is not installed.
        ValueError: when the name means nothing, the model cannot be built, or the images are volumes.
    """
    name = parse_encoder_name(text)
    if img_size is not None and len(img_size) != 2:
        raise ValueError(
            f"encoder {text!r} takes pictures, and the images have {len(img_size)} axes"
        )
    adapter = {"hub": HuggingFaceEncoder, "timm": TimmEncoder}[name.library]
    return adapter(name.model, img_size, in_channels, pretrained=name.pretrained and pretrained)


# what networks, studies and optimizers use beside the call itself; RadiographEncoder describes it
INTERFACE = (
    *RadiographEncoder.__annotations__,
    "normalize",
    "denormalize",
    "feature_maps",
    "parameters_by_depth",
)


def missing_parts(encoder: nn.Module) -> list[str]:
    """
    What an encoder lacks of the interface that networks, studies and optimizers use.

    Args:
        encoder: any module.

    Returns:
        Names of attributes and methods, see ``monai_afire.networks.nets.encoders.encoder_building.INTERFACE``.

    Example:
        >>> missing_parts(nn.Identity())[:3]
        ['in_channels', 'img_size', 'patch_size']
    """
    return [name for name in INTERFACE if not hasattr(encoder, name)]


def as_encoder(
    encoder: nn.Module, img_size: Sequence[int] | int | None = None
) -> RadiographEncoder:
    """
    Take an encoder as it is, or put the adapter around a network of MONAI, transformers or timm.

    Args:
        encoder: a :class:`monai_afire.networks.RadiographEncoder` or another module with its interface; or MONAI's
            ``ViT``, ``SwinTransformer`` or ``BasicUNet``, a model of ``transformers`` or one of ``timm``.
        img_size: spatial size of the images in pixels, for networks that do not know it; None for theirs.

    Returns:
        An encoder: ``encoder(images)`` turns images ``(B, C, *S)`` in [0, 1] into tokens ``(B, L, D)``.

    Raises:
        TypeError: when it is none; what is missing is named.
        ValueError: when a network cannot be adapted, or is of another image size.

    Example:
        >>> from monai.networks.nets import ViT
        >>> encoder = as_encoder(ViT(1, (32, 32), (8, 8), hidden_size=24, mlp_dim=48, num_layers=2, num_heads=2,
        ...                          spatial_dims=2))
        >>> encoder.grid_size, encoder.hidden_size
        ((4, 4), 24)
        >>> as_encoder(nn.Linear(2, 2))
        Traceback (most recent call last):
        TypeError: Linear is no encoder, it has no in_channels, img_size, ...
    """
    missing = missing_parts(encoder)
    if not missing:
        checked: Any = encoder
        return checked
    if isinstance(encoder, MONAI_NETWORKS):
        return MONAIEncoder(encoder, img_size)
    roots = {base.__module__.partition(".")[0] for base in type(encoder).__mro__}
    if "transformers" in roots and hasattr(encoder, "config"):
        return HuggingFaceEncoder(encoder, img_size)
    if "timm" in roots:
        return TimmEncoder(encoder, img_size)
    hint = "; of a pre-training network pass its .encoder" if hasattr(encoder, "encoder") else ""
    raise TypeError(
        f"{type(encoder).__name__} is no encoder, it has no {', '.join(missing)}: pass a ViTEncoder, SwinEncoder, or a "
        f"network of MONAI, transformers or timm, or subclass RadiographEncoder and call its set_interface(){hint}"
    )


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

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> own = ViTEncoder(img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
        >>> build_encoder(None, own) is own
        True
        >>> build_encoder("dinov2", own)
        Traceback (most recent call last):
        ValueError: encoder 'dinov2' names no encoder: give hub:FOLDER, hub:OWNER/NAME or timm:NAME, ...
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
                f"{option} is {given}, and the encoder's is {needed}: give --{option} {needed[0]}"
            )
    return built
