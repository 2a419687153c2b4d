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


def gather_parts(tokens: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """
    Concatenate the tokens of each block of 2 x 2 patches.

    Args:
        tokens: ``(B, L, D)``, L in row-major order of the grid.
        grid: rows and columns of patches, both even.

    Returns:
        ``(B, L / 4, 4 D)``: the blocks in row-major order of the halved grid, in each the parts in row-major order one
        after the other.

    Example:
        >>> gather_parts(torch.arange(8.0).view(1, 8, 1), (2, 4))
        tensor([[[0., 1., 4., 5.],
                 [2., 3., 6., 7.]]])
    """
    blocks = F.pixel_unshuffle(tokens.mT.unflatten(2, tuple(grid)), RATIO).flatten(2).mT
    # each of the D channels has its parts side by side
    return blocks.unflatten(2, (-1, PARTS)).mT.flatten(2)


def spread_parts(tokens: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """
    Split every token into 2 x 2 parts; the inverse of :func:`gather_parts`.

    Args:
        tokens: ``(B, L, 4 D)``, the parts in row-major order one after the other, L in row-major order of the grid.
        grid: rows and columns of patches.

    Returns:
        ``(B, 4 L, D)``, the parts in row-major order of the doubled grid.

    Example:
        >>> spread_parts(torch.tensor([[[0.0, 1, 4, 5], [2, 3, 6, 7]]]), (1, 2)).flatten()
        tensor([0., 1., 2., 3., 4., 5., 6., 7.])
    """
    channels = tokens.unflatten(2, (PARTS, -1)).mT.flatten(2)
    return F.pixel_shuffle(channels.mT.unflatten(2, tuple(grid)), RATIO).flatten(2).mT


class Composer(nn.Module):
    r"""
    Embed a patch from the tokens of its parts (ACE, Eq. 2).

    .. math:: y_q = C(f(q_1), \dots, f(q_4))

    C is a two-layer MLP on the concatenated tokens, :math:`4 D \to H \to D`.

    Args:
        hidden_size: D, width of the tokens.
        grid_size: rows and columns of patches, both even.
        mlp_dim: H, width between the two layers; None for D (the paper gives none).

    Raises:
        ValueError: for an odd grid.

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
        self.mlp = ProjectionMLP(
            PARTS * hidden_size, mlp_dim or hidden_size, hidden_size, num_layers=2
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Compose blocks of tokens.

        Args:
            tokens: ``(B, L, D)``, L in row-major order of the grid.

        Returns:
            ``(B, L / 4, D)`` in row-major order of the halved grid.
        """
        return self.mlp(gather_parts(tokens, self.grid_size))


class Decomposer(nn.Module):
    r"""
    Embed the parts of a patch from its token (ACE, Eq. 6).

    .. math:: y_{p_1}, \dots, y_{p_4} = D(f(p))

    D is a two-layer MLP, :math:`D \to H \to 4 D`, whose output is split into the parts.

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
        out_dim = PARTS * hidden_size
        self.mlp = ProjectionMLP(hidden_size, mlp_dim or hidden_size, out_dim, num_layers=2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Decompose every token.

        Args:
            tokens: ``(B, L, D)``, L in row-major order of the grid.

        Returns:
            ``(B, 4 L, D)`` in row-major order of the doubled grid.
        """
        return spread_parts(self.mlp(tokens), self.grid_size)
