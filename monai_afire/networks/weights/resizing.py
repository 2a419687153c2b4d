# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fitting weights to another image size, patch size, window, number of channels and normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from monai_afire.networks.blocks.position_embedding import (
    along_axes,
    resize_matrix,
    resize_position_embedding,
)
from monai_afire.networks.nets.encoders.adapted_encoder import IMAGENET_MEAN, IMAGENET_STD
from monai_afire.networks.weights.formats import EMBEDDING, POSITIONS, Conversion

__all__ = ["convert_channels", "fit_swin", "fit_vit", "resize_patch_kernel", "source_grid"]

TABLE = "attn.relative_position_bias_table"
# heads of the published models by width; the number is not in a state dict
PUBLISHED_HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}


def fit_vit(conversion: Conversion, encoder: Any) -> None:
    """Bring patch and position embedding into the shapes of a ``ViTEncoder``, in place; the rest stays as it is."""
    _fit_patch_embedding(conversion, EMBEDDING, encoder.patch_size, encoder)
    if POSITIONS in conversion.tensors:
        _fit_positions(conversion, encoder.grid_size)
    heads, published = encoder.blocks[0].attn.num_heads, PUBLISHED_HEADS.get(encoder.hidden_size)
    is_unknown = conversion.source.of_photographs and conversion.num_heads is None
    if is_unknown and published not in (None, heads):
        conversion.notes.append(
            f"the encoder has {heads} attention heads, published models of width {encoder.hidden_size} have "
            f"{published}; a checkpoint does not hold the number, and a wrong one spoils the features"
        )


def fit_swin(conversion: Conversion, encoder: Any) -> None:
    """
    Bring patch embedding and tables of relative positions into the shapes of a ``SwinEncoder``, in place.

    A table for another window is interpolated (bicubic, antialiased) to the encoder's.
    """
    patch_size = encoder.patch_embed.proj.weight.shape[2:]
    _fit_patch_embedding(conversion, "patch_embed.proj", patch_size, encoder)
    for number, layer in enumerate(encoder.layers):
        window = layer.blocks[0].attn.window_size
        names = [f"layers.{number}.blocks.{block}.{TABLE}" for block in range(len(layer.blocks))]
        count = sum(_fit_table(conversion.tensors, name, window) for name in names)
        if count:
            size = " x ".join(map(str, window))
            conversion.resized.append(
                f"layers.{number}.blocks: {count} tables of relative positions -> window {size}"
            )


def _fit_patch_embedding(
    conversion: Conversion, layer: str, patch_size: Sequence[int], encoder: Any
) -> None:
    """Bring a patch embedding to an encoder's channels, normalization and patch size, in place."""
    tensors, name = conversion.tensors, f"{layer}.weight"
    if name not in tensors:
        return
    old_shape = tuple(tensors[name].shape)
    kernel = _as_kernel(tensors[name], name, patch_size).cpu()
    bias = tensors.get(f"{layer}.bias", torch.zeros(kernel.shape[0], dtype=kernel.dtype)).cpu()
    normalization = _source_normalization(conversion, kernel.shape[1])
    # one value stands for all channels
    mean, std = (
        value.detach().cpu().flatten().expand(encoder.in_channels)
        for value in (encoder.mean, encoder.std)
    )
    kernel, bias = convert_channels(kernel, bias, normalization, (mean, std))
    if kernel.shape[2:] != tuple(patch_size):
        kernel = resize_patch_kernel(kernel, tuple(patch_size))
    tensors[name], tensors[f"{layer}.bias"] = kernel, bias
    if tuple(kernel.shape) != old_shape:
        conversion.resized.append(f"{name} {old_shape} -> {tuple(kernel.shape)}")


def _as_kernel(weight: torch.Tensor, name: str, patch_size: Sequence[int]) -> torch.Tensor:
    """A convolution's kernel ``(D, C, *patch)``, from a perceptron's ``(D, *patch x C)`` too."""
    if weight.ndim == 2 and weight.shape[1] % math.prod(patch_size) == 0:
        return weight.reshape(weight.shape[0], *patch_size, -1).movedim(-1, 1)
    if weight.ndim != 2 + len(patch_size):
        raise ValueError(
            f"{name} is {tuple(weight.shape)} in the checkpoint, the encoder's patches are {tuple(patch_size)}: "
            "build the encoder with the checkpoint's spatial_dims and patch_size"
        )
    return weight


def _source_normalization(
    conversion: Conversion, channels: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Mean and standard deviation of the source's images; None for those of the encoder."""
    given = conversion.normalization
    if given is None and conversion.source.of_photographs and channels == 3:
        given = IMAGENET_MEAN, IMAGENET_STD
        conversion.notes.append(
            "the patch embedding is converted from ImageNet's normalization of RGB images; if the checkpoint's was "
            "another, pass source_normalization"
        )
    if given is None:
        return None
    mean, std = (torch.as_tensor(value, dtype=torch.float64).flatten() for value in given)
    if mean.numel() not in (1, channels) or std.numel() not in (1, channels) or not (std > 0).all():
        raise ValueError(
            "source_normalization must be (mean, std > 0), one value or one for each of "
            f"{channels} channels, got {given}"
        )
    return mean, std


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
    Make a patch embedding for other channels and another normalization of the same image; exact.

    With A the channels that the kernel W was made for, as a mixture of the new ones (gray repeated, or colors
    averaged), m and s its mean and standard deviation, m' and s' the new ones:

    .. math:: W' = W \, \text{diag}(1/s) \, A \, \text{diag}(s'), \qquad
        b' = b + \sum_\text{pixels} W \frac{A m' - m}{s}

    For RGB to gray with equal normalizations this is the sum over the channels.

    Args:
        kernel: W, ``(D, C, *patch)``.
        bias: b, ``(D,)``.
        old_normalization: m and s, one value or ``(C,)`` each; None for that of the new channels.
        new_normalization: m' and s', ``(C',)`` each.

    Returns:
        W' ``(D, C', *patch)`` and b' ``(D,)`` in their dtypes; the very tensors given where nothing changes.

    Raises:
        ValueError: when C and C' differ and neither is 1.
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


def _mixture(old: int, new: int) -> torch.Tensor:
    """``(old, new)``: the channels of the checkpoint's images as a mixture of those of the encoder's."""
    if old == new:
        return torch.eye(old, dtype=torch.float64)
    if 1 not in (old, new):
        raise ValueError(
            f"{old} channels cannot be made into {new}: build the encoder with in_channels={old} or 1"
        )
    return torch.full((old, new), 1 / new, dtype=torch.float64)


def _fit_positions(conversion: Conversion, target: tuple[int, ...]) -> None:
    """Leave out the positions of class and register tokens, and interpolate the others."""
    embedding = conversion.tensors[POSITIONS].cpu()
    found = _grid_of_positions(conversion, embedding, target)
    if found is None:
        raise ValueError(
            f"{POSITIONS} is {tuple(embedding.shape)} with up to {conversion.prefix_tokens} class tokens, the "
            f"encoder's grid is {target}, source_grid is {conversion.grid}: pass the checkpoint's number of patches "
            "as source_grid"
        )
    skip, grid = found
    conversion.tensors[POSITIONS] = embedding[:, skip:]
    if grid != target:
        conversion.tensors[POSITIONS] = resize_position_embedding(embedding[:, skip:], grid, target)
        old, new = (" x ".join(map(str, each)) for each in (grid, target))
        conversion.resized.append(f"{POSITIONS} of {old} patches -> {new}")


def _grid_of_positions(
    conversion: Conversion, embedding: torch.Tensor, target: tuple[int, ...]
) -> tuple[int, tuple[int, ...]] | None:
    """How many positions to skip, and the grid of the others; None where they fill none."""
    if embedding.ndim != 3:
        return None
    positions, prefix_tokens, grid = embedding.shape[1], conversion.prefix_tokens, conversion.grid
    if grid is None:
        same_first = not conversion.source.of_photographs
        registers = conversion.register_tokens
        return source_grid(positions, prefix_tokens, target, same_first, registers)
    skip = positions - math.prod(grid)
    fits = 0 <= skip <= prefix_tokens and len(grid) == len(target)
    return (skip, grid) if fits else None


def source_grid(
    num_positions: int,
    prefix_tokens: int,
    new_grid: Sequence[int],
    same_first: bool,
    register_tokens: int = 0,
) -> tuple[int, tuple[int, ...]] | None:
    """
    Tell the grid of patches from the number of position embeddings, where a file does not state it.

    All tokens before the patches have positions, or those that are no registers (DINOv2), or none.

    Args:
        num_positions: their number in the checkpoint.
        prefix_tokens: how many of them may belong to class and register tokens.
        new_grid: the encoder's grid.
        same_first: whether the encoder's grid is likelier than a square one.
        register_tokens: how many of the tokens before the patches are registers.

    Returns:
        Number of embeddings to skip and the grid; None if there is no such grid.

    Example:
        >>> source_grid(197, 1, (20, 20), same_first=False)
        (1, (14, 14))
    """
    # a square grid behind any number of tokens is likelier than the encoder's own behind one
    for kind in (_same_grid, _square_grid) if same_first else (_square_grid, _same_grid):
        for skip in (prefix_tokens, prefix_tokens - register_tokens, 0):
            grid = kind(num_positions - skip, new_grid)
            if grid is not None:
                return skip, grid
    return None


def _same_grid(patches: int, new_grid: Sequence[int]) -> tuple[int, ...] | None:
    return tuple(new_grid) if math.prod(new_grid) == patches else None


def _square_grid(patches: int, new_grid: Sequence[int]) -> tuple[int, ...] | None:
    edge = round(max(patches, 0) ** (1 / len(new_grid)))
    return (edge,) * len(new_grid) if patches > 0 and edge ** len(new_grid) == patches else None


def _fit_table(tensors: dict[str, torch.Tensor], name: str, window: tuple[int, ...]) -> bool:
    """Resize one table if its window is another; return whether it was."""
    table, offsets = tensors.get(name), tuple(2 * w - 1 for w in window)
    if table is None or table.shape[0] == math.prod(offsets):
        return False
    found = source_grid(table.shape[0], 0, offsets, same_first=True)
    if found is None:
        raise ValueError(
            f"{name} is {tuple(table.shape)} in the checkpoint, no table of a square window: build the encoder, whose "
            f"window is {window}, with the checkpoint's window_size and img_size"
        )
    tensors[name] = resize_position_embedding(table[None].cpu(), found[1], offsets)[0]
    return True
