# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heads that compose 2 x 2 tokens into one and decompose one into 2 x 2 (ACE)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from monai_afire.networks.blocks.heads import ProjectionMLP

# parts of a patch along each axis, and in all
RATIO = 2
PARTS = RATIO**2


class Composer(nn.Module):
    r"""
    Embed a patch from the tokens of its parts (ACE, Eq. 2).

    .. math:: y_q = C(f(q_1), \dots, f(q_4))

    C is a two-layer MLP on the concatenated tokens, :math:`4 D \to H \to D`. Tokens ``(B, L, D)``, in row-major order
    of the grid, become ``(B, L / 4, D)``, in row-major order of the halved grid.

    Args:
        hidden_size: D, width of the tokens.
        grid_size: rows and columns of patches, both even.
        mlp_dim: H, width between the two layers; None for D (the paper gives none).

    Example:
        >>> Composer(hidden_size=8, grid_size=(4, 4))(torch.rand(3, 16, 8)).shape
        torch.Size([3, 4, 8])
    """

    def __init__(
        self, hidden_size: int, grid_size: Sequence[int], mlp_dim: int | None = None
    ) -> None:
        super().__init__()
        self.grid_size = tuple(grid_size)
        if any(length % RATIO for length in self.grid_size):
            remedy = "choose another image or patch size"
            raise ValueError(f"the grid {self.grid_size} must be even along every axis: {remedy}")
        width = mlp_dim or hidden_size
        self.mlp = ProjectionMLP(PARTS * hidden_size, width, hidden_size, num_layers=2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Compose blocks of tokens, in each the parts in row-major order."""
        blocks = F.pixel_unshuffle(tokens.mT.unflatten(2, self.grid_size), RATIO).flatten(2).mT
        # each of the D channels has its parts side by side; the MLP takes the parts one after the other
        return self.mlp(blocks.unflatten(2, (-1, PARTS)).mT.flatten(2))


class Decomposer(nn.Module):
    r"""
    Embed the parts of a patch from its token (ACE, Eq. 6).

    .. math:: y_{p_1}, \dots, y_{p_4} = D(f(p))

    D is a two-layer MLP, :math:`D \to H \to 4 D`, whose output is split into the parts. Tokens ``(B, L, D)`` become
    ``(B, 4 L, D)``, in row-major order of the doubled grid.

    Args:
        hidden_size: D, width of the tokens.
        grid_size: rows and columns of patches.
        mlp_dim: H, width between the two layers; None for D (the paper gives none).

    Example:
        >>> Decomposer(hidden_size=8, grid_size=(4, 4))(torch.rand(3, 16, 8)).shape
        torch.Size([3, 64, 8])
    """

    def __init__(
        self, hidden_size: int, grid_size: Sequence[int], mlp_dim: int | None = None
    ) -> None:
        super().__init__()
        self.grid_size = tuple(grid_size)
        width = mlp_dim or hidden_size
        self.mlp = ProjectionMLP(hidden_size, width, PARTS * hidden_size, num_layers=2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Decompose every token into its parts, which the MLP gives one after the other in row-major order."""
        channels = self.mlp(tokens).unflatten(2, (PARTS, -1)).mT.flatten(2)
        return F.pixel_shuffle(channels.mT.unflatten(2, self.grid_size), RATIO).flatten(2).mT
