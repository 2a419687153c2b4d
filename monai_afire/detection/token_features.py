# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Features that a detector measures: the tokens of an encoder, or features of several of its layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.networks.nets.encoders.encoder_building import as_encoder
from monai_afire.networks.nets.encoders.radiograph_encoder import RadiographEncoder

LAYERS = ("last", "all")


class FrozenEncoder(nn.Module):
    """
    A frozen encoder, used where a detector expects a pre-trained network.

    Args:
        encoder: any, see :func:`monai_afire.networks.as_encoder`; used as it is, not copied.

    Raises:
        TypeError: when it is none.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=1, num_heads=2)
        >>> frozen = FrozenEncoder(encoder).train()
        >>> frozen.encoder.training, any(parameter.requires_grad for parameter in frozen.parameters())
        (False, False)
    """

    encoder: RadiographEncoder

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = as_encoder(encoder)
        self.encoder.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> FrozenEncoder:
        """The encoder stays in evaluation mode: no dropout, no stochastic depth."""
        super().train(mode)
        self.encoder.eval()
        return self


def feature_width(encoder: RadiographEncoder, layers: str) -> int:
    """Width of the features of :func:`tokens_and_features`."""
    if layers not in LAYERS:
        raise ValueError(f"layers must be one of {LAYERS}, got {layers!r}")
    return encoder.hidden_size if layers == "last" else sum(encoder.feature_channels)


def tokens_and_features(
    encoder: RadiographEncoder, image: torch.Tensor, layers: str = "last"
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    An encoder's tokens, and the features to describe each of them by, in one pass.

    Args:
        encoder: any.
        image: ``(B, C, *S)`` in [0, 1].
        layers: "last" for the tokens themselves; "all" for the encoder's feature maps beside each other, finer ones
            averaged over each token's patch, as PatchCore and PaDiM join layers.

    Returns:
        Tokens ``(B, L, D)`` and features ``(B, L, F)``.

    Example:
        >>> from monai_afire.networks import ViTEncoder
        >>> encoder = ViTEncoder(img_size=32, patch_size=16, hidden_size=24, num_layers=4, num_heads=2)
        >>> tokens, features = tokens_and_features(encoder, torch.rand(2, 1, 32, 32), "all")
        >>> tokens.shape, features.shape
        (torch.Size([2, 4, 24]), torch.Size([2, 4, 96]))
    """
    if layers == "last":
        tokens = encoder(image)
        return tokens, tokens
    pool: Callable[..., torch.Tensor] = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[
        len(encoder.grid_size)
    ]
    grid = list(encoder.grid_size)
    maps = [pool(each, grid).flatten(2).transpose(1, 2) for each in encoder.feature_maps(image)]
    return maps[-1], torch.cat(maps, -1)
