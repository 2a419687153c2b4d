# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fitting weights to another image size, patch size, number of channels and normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from monai_afire.networks.blocks.position_embedding import along_axes, resize_matrix, resize_position_embedding

__all__ = ["convert_channels", "resize_matrix", "resize_patch_kernel", "resize_position_embedding", "source_grid"]


def resize_patch_kernel(kernel: torch.Tensor, new_size: Sequence[int]) -> torch.Tensor:
    r"""
    Resample a patch embedding so that a resized patch gives the same token (FlexiViT, Beyer et al. 2023, Sec. 3.4).

    .. math:: \hat w = \arg\min_{\hat w} E_x (\langle x, w \rangle - \langle Bx, \hat w \rangle)^2 = (B^\top)^+ w

    with B the bicubic interpolation of a patch x: exact for larger patches, least squares for smaller ones.

    Args:
        kernel: ``(D, C, *patch)``.
        new_size: edge lengths of the new patch in pixels.

    Returns:
        ``(D, C, *new_size)`` of the same dtype.

    Example:
        >>> resize_patch_kernel(torch.rand(8, 3, 14, 14), (16, 16)).shape
        torch.Size([8, 3, 16, 16])
    """
    sizes = zip(kernel.shape[2:], new_size, strict=True)
    matrices = [torch.linalg.pinv(resize_matrix(old, new).T) for old, new in sizes]
    return along_axes(kernel.double(), matrices, first=2).to(kernel.dtype)


def convert_channels(
    kernel: torch.Tensor,
    bias: torch.Tensor,
    old_normalization: tuple[torch.Tensor, torch.Tensor] | None,
    new_normalization: tuple[torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Make a patch embedding for other channels and another normalisation of the same image; exact.

    With A the channels that the kernel W was made for, as a mixture of the new ones (gray repeated, or colours
    averaged), m and s its mean and standard deviation, m' and s' the new ones:

    .. math:: W' = W \, \text{diag}(1/s) \, A \, \text{diag}(s'), \qquad
        b' = b + \sum_\text{pixels} W \frac{A m' - m}{s}

    For RGB to gray with equal normalisations this is the sum over the channels.

    Args:
        kernel: W, ``(D, C, *patch)``.
        bias: b, ``(D,)``.
        old_normalization: m and s, one value or ``(C,)`` each; None for that of the new channels.
        new_normalization: m' and s', ``(C',)`` each.

    Returns:
        W' ``(D, C', *patch)`` and b' ``(D,)`` in their dtypes; the very tensors given where nothing changes.

    Raises:
        ValueError: when C and C' differ and neither is 1.

    Example:
        >>> gray = torch.tensor([0.4]), torch.tensor([0.2])
        >>> weight, bias = convert_channels(torch.ones(2, 3, 4, 4), torch.zeros(2), None, gray)
        >>> weight.shape, float(weight.max()), float(bias.max())
        (torch.Size([2, 1, 4, 4]), 3.0, 0.0)
    """
    new_mean, new_std = (value.double() for value in new_normalization)
    mixture = _mixture(kernel.shape[1], new_mean.numel())
    expected = mixture @ new_mean, mixture @ new_std
    given = expected if old_normalization is None else old_normalization
    mean, std = (value.double().expand(kernel.shape[1]) for value in given)
    unchanged = torch.allclose(mean, expected[0]) and torch.allclose(std, expected[1])
    if unchanged and kernel.shape[1] == new_mean.numel():
        return kernel, bias
    factor = mixture * new_std / std[:, None]
    weight = torch.einsum("dc...,cn->dn...", kernel.double(), factor)
    shift = kernel.double().flatten(2).sum(-1) @ ((expected[0] - mean) / std)
    return weight.to(kernel.dtype), (bias.double() + shift).to(bias.dtype)


def source_grid(
    num_positions: int, prefix_tokens: int, new_grid: Sequence[int], same_first: bool
) -> tuple[int, tuple[int, ...]] | None:
    """
    Tell the grid of patches from the number of position embeddings.

    Args:
        num_positions: their number in the checkpoint.
        prefix_tokens: how many of them may belong to class and register tokens.
        new_grid: the encoder's grid.
        same_first: whether the encoder's grid is likelier than a square one.

    Returns:
        Number of embeddings to skip and the grid; None if there is no such grid.

    Example:
        >>> source_grid(197, 1, (20, 20), same_first=False)
        (1, (14, 14))
    """
    for skip in range(prefix_tokens, -1, -1):
        remaining = num_positions - skip
        edge = round(max(remaining, 0) ** (1 / len(new_grid)))
        square = (edge,) * len(new_grid)
        for grid in (tuple(new_grid), square) if same_first else (square, tuple(new_grid)):
            if remaining > 0 and math.prod(grid) == remaining:
                return skip, grid
    return None


def _mixture(old: int, new: int) -> torch.Tensor:
    """``(old, new)``: the channels of the checkpoint's images as a mixture of those of the encoder's."""
    if old == new:
        return torch.eye(old, dtype=torch.float64)
    if new == 1:
        return torch.ones(old, 1, dtype=torch.float64)
    if old == 1:
        return torch.full((1, new), 1 / new, dtype=torch.float64)
    raise ValueError(
        f"a patch embedding of {old} channels cannot be made into one of {new}: build the encoder with in_channels="
        f"{old} or 1"
    )
