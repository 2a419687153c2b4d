# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Encoder architectures that weights can be loaded into, and where a network keeps its encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from monai_afire.networks.nets.encoders.build import missing_parts
from monai_afire.networks.nets.swin_encoder import SwinEncoder
from monai_afire.networks.nets.vit_encoder import ViTEncoder
from monai_afire.networks.weights.filters import CheckpointFilter, Converted
from monai_afire.networks.weights.patch_embedding import SourceImages
from monai_afire.networks.weights.swin import SWIN_SOURCES, fit_swin, swin_settings
from monai_afire.networks.weights.vit import fit_vit, vit_settings
from monai_afire.networks.weights.vit_filters import VIT_SOURCES

__all__ = ["ARCHITECTURES", "Architecture", "architecture_of", "encoders_of"]


@dataclass(frozen=True)
class Architecture:
    """
    Rules by which checkpoints are fitted to one class of encoders.

    Attributes:
        sources: names for the argument `source` and the filters that each stands for; "auto" has all.
        fit: brings converted tensors into an encoder's shapes, in place.
        settings: describes the encoder that tensors fit, for messages.
        unused: part of the names of keys whose absence is no news: never used, or constant.
    """

    sources: Mapping[str, tuple[CheckpointFilter, ...]]
    fit: Callable[[Converted, CheckpointFilter, Any, SourceImages], None]
    settings: Callable[[dict[str, torch.Tensor]], str]
    unused: str


ARCHITECTURES: dict[type[nn.Module], Architecture] = {
    ViTEncoder: Architecture(VIT_SOURCES, fit_vit, vit_settings, unused="norm_cross_attn"),
    SwinEncoder: Architecture(SWIN_SOURCES, fit_swin, swin_settings, unused="relative_position_index"),
}


def architecture_of(encoder: nn.Module) -> Architecture | None:
    """
    Look an encoder up.

    Args:
        encoder: any module.

    Returns:
        Its architecture, None for a module that is no known encoder.

    Example:
        >>> architecture_of(nn.Linear(2, 2)) is None
        True
    """
    return next((found for kind, found in ARCHITECTURES.items() if isinstance(encoder, kind)), None)


def encoders_of(net: nn.Module) -> list[nn.Module]:
    """
    The encoder(s) of a network: itself, or its `encoder` and, where there is one, its `teacher_encoder`.

    Args:
        net: an encoder or a network that has one.

    Returns:
        The encoder, then the teacher.

    Raises:
        TypeError: when there is no known encoder.

    Example:
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> encoders_of(nn.ModuleDict({"encoder": encoder})) == encoders_of(encoder)
        True
    """
    if not missing_parts(net):
        return [net]
    parts = dict(net.named_children())
    if "encoder" not in parts or missing_parts(parts["encoder"]):
        raise TypeError(
            f"{type(net).__name__} is no {', '.join(kind.__name__ for kind in ARCHITECTURES)} or adapted encoder and "
            f"has none as its 'encoder' (its parts: {', '.join(parts) or 'none'}): pass the encoder, or the network as "
            "it is before DistributedDataParallel or compilation"
        )
    return [parts[name] for name in ("encoder", "teacher_encoder") if name in parts]
