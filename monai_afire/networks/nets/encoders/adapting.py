# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Any network as an encoder: one of this package as it is, one of another library in the adapter for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn

from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

Adapter = TypeVar("Adapter", bound=type)

_ADAPTERS: dict[str, Any] = {}  # by the package that a network's class comes from

# what networks, studies and optimizers use beside the call itself; RadiographEncoder describes it
_INTERFACE = (
    *RadiographEncoder.__annotations__,
    "normalize",
    "denormalize",
    "feature_maps",
    "parameters_by_depth",
)


def missing_parts(encoder: nn.Module) -> list[str]:
    """Names of the attributes and methods that an encoder lacks of the interface of encoders."""
    return [name for name in _INTERFACE if not hasattr(encoder, name)]


def adapts(library: str) -> Callable[[Adapter], Adapter]:
    """Let networks of a library be adapted by the decorated class, which takes the network and an image size."""

    def register(adapter: Adapter) -> Adapter:
        _ADAPTERS[library] = adapter
        return adapter

    return register


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
        TypeError: when it is none.
        ValueError: when a network cannot be adapted, or is of another image size.

    Example:
        >>> from monai.networks.nets import ViT
        >>> encoder = as_encoder(ViT(1, (32, 32), (8, 8), hidden_size=24, mlp_dim=48, num_layers=2, num_heads=2,
        ...                          spatial_dims=2))
        >>> encoder.grid_size, encoder.hidden_size
        ((4, 4), 24)
    """
    missing = missing_parts(encoder)
    if not missing:
        checked: Any = encoder
        return checked
    roots = {base.__module__.partition(".")[0] for base in type(encoder).__mro__}
    for library in roots & _ADAPTERS.keys():
        return _ADAPTERS[library](encoder, img_size)
    kind = type(encoder).__name__
    if hasattr(encoder, "encoder"):
        raise TypeError(f"{kind} is no encoder: pass its .encoder")
    raise TypeError(
        f"{kind} is no encoder, it has no {missing[0]}: take a ViT, SwinTransformer or BasicUNet of MONAI, "
        "a model of transformers or timm, or a RadiographEncoder, such as ResidualEncoder"
    )
