# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Heads that compose 2 x 2 tokens into one and decompose one into 2 x 2 (ACE)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from monai_afire.networks.blocks.heads import ProjectionMLP
from monai_afire.networks.blocks.patches import patchify, unpatchify

# parts of a patch along each axis
RATIO = 2


def gather_parts(tokens: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """
    Concatenate the tokens of each block of two patches per axis.

    Args:
        tokens: ``(B, L, D)``, L in row-major order of the grid.
        grid: number of patches along each of the n spatial axes, all even; their product is L.

    Returns:
        ``(B, L / 2**n, 2**n D)``: the blocks in row-major order of the halved grid, in each the parts in row-major
        order one after the other.

    Raises:
        ValueError: when an axis of the grid is odd or the tokens do not fill it.

    Example:
        >>> gather_parts(torch.arange(8.0).view(1, 8, 1), (2, 4))
        tensor([[[0., 1., 4., 5.],
                 [2., 3., 6., 7.]]])
    """
    _check_even(grid)
    _check_tokens(tokens, grid)
    parts = patchify(tokens.transpose(1, 2).unflatten(2, tuple(grid)), RATIO)
    # a patch has its channels, here D, slowest
    return parts.unflatten(2, (tokens.shape[-1], -1)).transpose(2, 3).flatten(2)


def spread_parts(tokens: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """
    Split every token into two parts per axis; the inverse of :func:`gather_parts`.

    Args:
        tokens: ``(B, L, 2**n D)``, the parts in row-major order one after the other, L in row-major order of the grid.
        grid: number of patches along each of the n spatial axes; their product is L.

    Returns:
        ``(B, 2**n L, D)``, the parts in row-major order of the doubled grid.

    Raises:
        ValueError: when the tokens do not fill the grid or their width cannot be divided.

    Example:
        >>> spread_parts(torch.tensor([[[0.0, 1, 4, 5], [2, 3, 6, 7]]]), (1, 2)).flatten()
        tensor([0., 1., 2., 3., 4., 5., 6., 7.])
    """
    _check_tokens(tokens, grid)
    num_parts = RATIO ** len(grid)
    if tokens.shape[-1] % num_parts:
        raise ValueError(
            f"tokens of width {tokens.shape[-1]} cannot be divided into {num_parts} parts"
        )
    patches = tokens.unflatten(2, (num_parts, -1)).transpose(2, 3).flatten(2)
    return unpatchify(patches, grid, RATIO).flatten(2).transpose(1, 2)


class Composer(nn.Module):
    r"""
    Embed a patch from the tokens of its parts (ACE, Eq. 2).

    .. math:: y_q = C(f(q_1), \dots, f(q_{2^n}))

    with n spatial axes; C is a two-layer MLP on the concatenated tokens, :math:`2^n D \to H \to D`.

    Args:
        hidden_size: D, width of the tokens.
        grid_size: number of patches along each axis, all even.
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
        _check_even(grid_size)
        self.grid_size = tuple(grid_size)
        in_dim = RATIO ** len(self.grid_size) * hidden_size
        self.mlp = ProjectionMLP(in_dim, mlp_dim or hidden_size, hidden_size, num_layers=2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Compose blocks of tokens.

        Args:
            tokens: ``(B, L, D)``, L in row-major order of the grid.

        Returns:
            ``(B, L / 2**n, D)`` in row-major order of the halved grid.

        Raises:
            ValueError: when the tokens do not fill the grid.
        """
        return self.mlp(gather_parts(tokens, self.grid_size))


class Decomposer(nn.Module):
    r"""
    Embed the parts of a patch from its token (ACE, Eq. 6).

    .. math:: y_{p_1}, \dots, y_{p_{2^n}} = D(f(p))

    with n spatial axes; D is a two-layer MLP, :math:`D \to H \to 2^n D`, whose output is split into the parts.

    Args:
        hidden_size: D, width of the tokens.
        grid_size: number of patches along each axis.
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
        out_dim = RATIO ** len(self.grid_size) * hidden_size
        self.mlp = ProjectionMLP(hidden_size, mlp_dim or hidden_size, out_dim, num_layers=2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Decompose every token.

        Args:
            tokens: ``(B, L, D)``, L in row-major order of the grid.

        Returns:
            ``(B, 2**n L, D)`` in row-major order of the doubled grid.

        Raises:
            ValueError: when the tokens do not fill the grid.
        """
        return spread_parts(self.mlp(tokens), self.grid_size)


def _check_even(grid: Sequence[int]) -> None:
    if any(length % RATIO for length in grid):
        raise ValueError(
            f"the grid {tuple(grid)} must be even along every axis: choose another image or patch size"
        )


def _check_tokens(tokens: torch.Tensor, grid: Sequence[int]) -> None:
    if tokens.ndim != 3 or tokens.shape[1] != math.prod(grid):
        raise ValueError(
            f"tokens must be (B, L = {math.prod(grid)}, D) for the grid {grid}, got {tuple(tokens.shape)}"
        )
