# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a network may ask of its encoder, and how other libraries' networks come to offer it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from monai_afire.networks.nets.encoders.hugging_face_encoder import HuggingFaceEncoder
from monai_afire.networks.nets.encoders.monai_encoder import MONAI_NETWORKS, MONAIEncoder
from monai_afire.networks.nets.encoders.timm_encoder import TimmEncoder
from monai_afire.networks.nets.radiograph_encoder import RadiographEncoder

__all__ = ["INTERFACE", "as_encoder", "missing_parts"]

# what the networks, studies and optimizers of this package use, beside the call itself
INTERFACE = {
    "in_channels": "channels of the images",
    "img_size": "spatial size of the images in pixels, a tuple",
    "patch_size": "pixels per token along each axis, a tuple",
    "grid_size": "tokens along each axis, a tuple",
    "hidden_size": "width of the tokens",
    "feature_channels": "channels of each feature map, finest first",
    "feature_strides": "pixels per element of each feature map, finest first, tuples",
    "mean": "tensor (1, C, 1, 1), mean intensity in [0, 1]",
    "std": "tensor (1, C, 1, 1), its standard deviation",
    "normalize": "method: images in [0, 1] to mean 0 and standard deviation 1",
    "denormalize": "method: back, clipped to [0, 1]",
    "feature_maps": "method: images to maps (B, C_i, *S_i), the tokens last",
    "parameters_by_depth": "method: parameters of each layer, first layer first",
}


def missing_parts(encoder: nn.Module) -> list[str]:
    """
    What an encoder lacks of the interface that networks, studies and optimizers use.

    Args:
        encoder: any module.

    Returns:
        Names of attributes and methods, see ``monai_afire.networks.nets.encoders.interface.INTERFACE``.

    Example:
        >>> missing_parts(nn.Identity())[:3]
        ['in_channels', 'img_size', 'patch_size']
    """
    return [name for name in INTERFACE if not hasattr(encoder, name)]


def as_encoder(encoder: nn.Module, img_size: Sequence[int] | int | None = None) -> RadiographEncoder:
    """
    Take an encoder as it is, or put the adapter around a network of MONAI, transformers or timm.

    Args:
        encoder: a :class:`monai_afire.networks.RadiographEncoder` or another module with its interface; or MONAI's
            ``ViT`` or ``SwinTransformer``, a model of ``transformers`` or one of ``timm``.
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
        TypeError: Linear is no encoder, it has no in_channels (channels of the images), ...
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
    named = ", ".join(f"{name} ({INTERFACE[name]})" for name in missing)
    hint = "; of a pre-training network pass its .encoder" if hasattr(encoder, "encoder") else ""
    raise TypeError(
        f"{type(encoder).__name__} is no encoder, it has no {named}: pass a ViTEncoder, SwinEncoder, MONAI's ViT or "
        "SwinTransformer, or a model of transformers or timm, or subclass RadiographEncoder and call its "
        f"set_interface(){hint}"
    )
