# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Decoder that restores the pixels of every patch from tokens, with abnormal tokens hidden."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from monai.networks.blocks.pos_embed_utils import build_sincos_position_embedding
from monai.networks.blocks.transformerblock import TransformerBlock
from torch import nn

from monai_afire.networks.blocks.position_embedding import without_meshgrid_warning
from monai_afire.networks.blocks.transformer import (
    init_linear,
    prepare_transformer_blocks,
    through_blocks,
)


class RestorationDecoder(nn.Module):
    r"""
    Restore normal pixels from the student's tokens (AFiRe, Eq. 18-19).

    .. math::
        y_i = R(\tilde z_i), \qquad
        \tilde z_{ij} = \begin{cases} W z_{ij} & \text{normal} \\ z_{\text{mask},j} & \text{abnormal} \end{cases}

    The tokens are projected to the decoder's width, abnormal ones replaced by trainable mask tokens, and a fixed
    sine-cosine position embedding added before a stack of transformer blocks.

    Args:
        in_dim: D, width of the encoder's tokens.
        grid_size: rows and columns of patches; L is their product.
        out_dim: P, pixels per patch x channels.
        hidden_dim: width of the decoder, a multiple of 4; 512 in the paper.
        num_layers: number of transformer blocks, 8 in the paper.
        num_heads: attention heads per block.
        mask_token_per_position: one mask token for every position (AFiRe), or one for all (MAE).
        use_checkpoint: recompute the activations of each block in the backward pass: less memory, more time.

    Example:
        >>> decoder = RestorationDecoder(24, grid_size=(2, 2), out_dim=64, hidden_dim=16, num_layers=1, num_heads=2)
        >>> abnormal = torch.tensor([[True, False, False, False]])
        >>> decoder(torch.rand(1, 4, 24), abnormal).shape
        torch.Size([1, 4, 64])
    """

    def __init__(
        self,
        in_dim: int,
        grid_size: Sequence[int],
        out_dim: int,
        hidden_dim: int = 512,
        num_layers: int = 8,
        num_heads: int = 16,
        mask_token_per_position: bool = True,
        use_checkpoint: bool = False,
    ) -> None:
        super().__init__()
        self.use_checkpoint = use_checkpoint
        num_tokens = math.prod(grid_size)
        self.projection = nn.Linear(in_dim, hidden_dim)
        self.mask_tokens = nn.Parameter(
            torch.empty(1, num_tokens if mask_token_per_position else 1, hidden_dim)
        )
        with without_meshgrid_warning():
            self.position_embeddings = build_sincos_position_embedding(
                list(grid_size), hidden_dim, spatial_dims=2
            )
        self.blocks = prepare_transformer_blocks(
            nn.ModuleList(
                TransformerBlock(hidden_dim, 4 * hidden_dim, num_heads, qkv_bias=True)
                for _ in range(num_layers)
            )
        )
        self.norm = nn.LayerNorm(hidden_dim)
        self.to_pixels = nn.Linear(hidden_dim, out_dim)
        nn.init.trunc_normal_(self.mask_tokens, std=0.02)
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        # starts near the mean intensity: larger weights would have to unlearn noise
        init_linear(self.to_pixels)

    @classmethod
    def for_encoder(cls, encoder: Any, *settings: Any, **others: Any) -> RestorationDecoder:
        """The decoder for the tokens, grid and patches of a ``RadiographEncoder``; arguments from ``hidden_dim`` on."""
        pixels = encoder.in_channels * math.prod(encoder.patch_size)
        return cls(encoder.hidden_size, encoder.grid_size, pixels, *settings, **others)

    def forward(self, tokens: torch.Tensor, hidden: torch.Tensor | None = None) -> torch.Tensor:
        """
        Restore the patches.

        Args:
            tokens: ``(B, L, D)`` of the encoder.
            hidden: ``(B, L)`` bool, True where the mask token takes the token's place; None hides nothing.

        Returns:
            ``(B, L, P)`` pixels of each patch, in the (normalized) intensity of the training target.
        """
        x = self.projection(tokens)
        if hidden is not None:
            x = torch.where(hidden.unsqueeze(-1), self.mask_tokens.to(x.dtype), x)
        x = x + self.position_embeddings.to(x.dtype)
        return self.to_pixels(self.norm(through_blocks(self.blocks, x, self.use_checkpoint)))
