# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fitting weights to another image size, patch size, number of channels and normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from monai_afire.networks.blocks.position_embedding import along_axes, resize_matrix
from monai_afire.networks.nets.encoders.adapted_encoder import IMAGENET_MEAN, IMAGENET_STD
from monai_afire.networks.weights.filters import Conversion

__all__ = [
    "convert_channels",
    "fit_patch_embedding",
    "resize_patch_kernel",
    "source_grid",
]


def fit_patch_embedding(
    conversion: Conversion, layer: str, patch_size: Sequence[int], encoder: Any
) -> None:
    """
    Bring a patch embedding to an encoder's channels, normalization and patch size, in place.

    Args:
        conversion: the checkpoint under the encoder's names; changed.
        layer: name of the convolution.
        patch_size: its kernel in the encoder.
        encoder: has ``in_channels``, ``mean`` and ``std``.

    Raises:
        ValueError: when it cannot be made to fit, or the normalization is out of range.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> from monai_afire.networks.weights.report import LoadReport
        >>> from monai_afire.networks.weights.vit import TIMM
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> tensors = {"proj.weight": torch.rand(24, 3, 14, 14), "proj.bias": torch.rand(24)}
        >>> conversion = Conversion(TIMM, tensors, LoadReport("vit.pth", "timm"))
        >>> fit_patch_embedding(conversion, "proj", (16, 16), encoder)
        >>> conversion.report.resized
        ['proj.weight (24, 3, 14, 14) -> (24, 1, 16, 16)']
    """
    tensors, report, normalization = conversion.tensors, conversion.report, conversion.normalization
    name = f"{layer}.weight"
    if name not in tensors:
        return
    old_shape = tuple(tensors[name].shape)
    kernel = _as_kernel(tensors[name], name, patch_size)
    bias = tensors.get(f"{layer}.bias", torch.zeros(kernel.shape[0], dtype=kernel.dtype))
    if normalization is None and conversion.source.of_photographs and kernel.shape[1] == 3:
        normalization = IMAGENET_MEAN, IMAGENET_STD
        report.notes.append(
            "the patch embedding is converted from ImageNet's normalization of RGB images; if the checkpoint's was "
            "another, pass source_normalization"
        )
    old = None if normalization is None else _normalization(normalization, kernel.shape[1])
    # one value stands for all channels
    mean, std = (
        value.detach().cpu().flatten().expand(encoder.in_channels)
        for value in (encoder.mean, encoder.std)
    )
    kernel, bias = convert_channels(kernel.cpu(), bias.cpu(), old, (mean, std))
    if kernel.shape[2:] != tuple(patch_size):
        kernel = resize_patch_kernel(kernel, tuple(patch_size))
    tensors[name], tensors[f"{layer}.bias"] = kernel, bias
    if tuple(kernel.shape) != old_shape:
        report.resized.append(f"{name} {old_shape} -> {tuple(kernel.shape)}")


def _as_kernel(weight: torch.Tensor, name: str, patch_size: Sequence[int]) -> torch.Tensor:
    """A convolution's kernel ``(D, C, *patch)``, from a perceptron's ``(D, *patch x C)`` too."""
    if weight.ndim == 2 and weight.shape[1] % math.prod(patch_size) == 0:
        return weight.reshape(weight.shape[0], *patch_size, -1).movedim(-1, 1)
    if weight.ndim != 2 + len(patch_size):
        found = f"{name} is {tuple(weight.shape)} in the checkpoint, the encoder's patches are {tuple(patch_size)}"
        raise ValueError(
            f"{found}: build the encoder with the checkpoint's spatial_dims and patch_size"
        )
    return weight


def _normalization(
    normalization: tuple[Any, Any], channels: int
) -> tuple[torch.Tensor, torch.Tensor]:
    mean, std = (torch.as_tensor(value, dtype=torch.float64).flatten() for value in normalization)
    if mean.numel() not in (1, channels) or std.numel() not in (1, channels) or not (std > 0).all():
        wanted = f"(mean, std > 0), one value or one for each of {channels} channels"
        raise ValueError(f"source_normalization must be {wanted}, got {normalization}")
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


def _mixture(old: int, new: int) -> torch.Tensor:
    """``(old, new)``: the channels of the checkpoint's images as a mixture of those of the encoder's."""
    if old == new:
        return torch.eye(old, dtype=torch.float64)
    if 1 not in (old, new):
        raise ValueError(
            f"{old} channels cannot be made into {new}: build the encoder with in_channels={old} or 1"
        )
    return torch.full((old, new), 1 / new, dtype=torch.float64)
