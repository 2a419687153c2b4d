# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fitting weights to another image size, patch size, number of channels and normalization."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch

from monai_afire.networks.blocks.position_embedding import (
    along_axes,
    resize_matrix,
    resize_position_embedding,
)
from monai_afire.networks.nets.encoders.adapted_encoder import IMAGENET_MEAN, IMAGENET_STD
from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
from monai_afire.networks.weights.report import LoadReport
from monai_afire.networks.weights.tensor_names import EMBEDDING, POSITIONS, TIMM, Tensors

__all__ = ["convert_channels", "fit_patch_embedding", "fit_positions", "resize_patch_kernel"]

Normalization = tuple[torch.Tensor, torch.Tensor]  # mean and standard deviation, one value or (C,)

_CLASS_TOKENS = r"(cls|dist)_token$"


def fit_patch_embedding(
    tensors: Tensors,
    encoder: ViTEncoder | SwinEncoder,
    normalization: Normalization | None,
    report: LoadReport,
) -> None:
    """
    Bring a patch embedding to an encoder's channels, normalization and patch size, in place.

    Args:
        tensors: of the source, by the encoder's names.
        encoder: left as it is.
        normalization: mean and standard deviation of the source's images; None to go by the layout.
        report: names the layout; gets what is resized.
    """
    layer = EMBEDDING if isinstance(encoder, ViTEncoder) else "patch_embed.proj"
    name = f"{layer}.weight"
    if name not in tensors:
        return
    patch_size = encoder.get_parameter(name).shape[2:]
    old_shape = tuple(tensors[name].shape)
    kernel = _as_kernel(tensors[name], name, patch_size).cpu()
    bias = tensors.get(f"{layer}.bias", torch.zeros(kernel.shape[0], dtype=kernel.dtype)).cpu()
    # one value stands for all channels
    mean, std = (
        value.detach().cpu().flatten().expand(encoder.in_channels)
        for value in (encoder.mean, encoder.std)
    )
    if normalization is None and report.layout == TIMM and kernel.shape[1] == 3:
        normalization = (
            torch.tensor(IMAGENET_MEAN, dtype=torch.float64),
            torch.tensor(IMAGENET_STD, dtype=torch.float64),
        )
        report.notes.append(
            "the patch embedding is converted from ImageNet's normalization of RGB images; if the checkpoint's was "
            "another, take the encoder of its library (timm:NAME)"
        )
    kernel, bias = convert_channels(kernel, bias, normalization, (mean, std))
    if kernel.shape[2:] != tuple(patch_size):
        kernel = resize_patch_kernel(kernel, patch_size)
    tensors[name], tensors[f"{layer}.bias"] = kernel, bias
    if tuple(kernel.shape) != old_shape:
        report.resized.append(f"{name} {old_shape} -> {tuple(kernel.shape)}")


def _as_kernel(weight: torch.Tensor, name: str, patch_size: Sequence[int]) -> torch.Tensor:
    """A convolution's kernel ``(D, C, *patch)``, from a perceptron's ``(D, *patch x C)`` too."""
    if weight.ndim == 2 and weight.shape[1] % math.prod(patch_size) == 0:
        return weight.reshape(weight.shape[0], *patch_size, -1).movedim(-1, 1)
    if weight.ndim != 2 + len(patch_size):
        raise ValueError(
            f"{name} is {tuple(weight.shape)} in the checkpoint, the encoder's patches are {tuple(patch_size)}: "
            "build the encoder with the checkpoint's patch_size"
        )
    return weight


def resize_patch_kernel(kernel: torch.Tensor, new_size: Sequence[int]) -> torch.Tensor:
    r"""
    Resample a patch embedding so that a resized patch gives the same token (FlexiViT, Beyer et al. 2023, Sec. 3.4).

    .. math:: \hat w = \arg\min_{\hat w} E_x (\langle x, w \rangle - \langle Bx, \hat w \rangle)^2 = (B^\top)^+ w

    with B the bicubic interpolation of a patch x: exact for larger patches, least squares for smaller ones. From
    ``(D, C, *patch)`` to ``(D, C, *new_size)`` of the same dtype.
    """
    sizes = zip(kernel.shape[2:], new_size, strict=True)
    matrices = [torch.linalg.pinv(resize_matrix(old, new).T) for old, new in sizes]
    return along_axes(kernel.double(), matrices, first=2).to(kernel.dtype)


def convert_channels(
    kernel: torch.Tensor,
    bias: torch.Tensor,
    old_normalization: Normalization | None,
    new_normalization: Normalization,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Make a patch embedding for other channels and another normalization of the same image; exact.

    With A the channels that the kernel W was made for, as a mixture of the new ones (gray repeated, or colors
    averaged), m and s its mean and standard deviation, m' and s' the new ones:

    .. math:: W' = W \, \text{diag}(1/s) \, A \, \text{diag}(s'), \qquad
        b' = b + \sum_\text{pixels} W \frac{A m' - m}{s}

    Args:
        kernel: W, ``(D, C, *patch)``.
        bias: b, ``(D,)``.
        old_normalization: m and s, one value or ``(C,)`` each; None for that of the new channels.
        new_normalization: m' and s', ``(C',)`` each.

    Returns:
        W' ``(D, C', *patch)`` and b' ``(D,)`` in their dtypes; the given tensors themselves where nothing changes.
    """
    new_mean, new_std = (value.double() for value in new_normalization)
    mixture = _mixture(kernel.shape[1], new_mean.numel())
    expected = mixture @ new_mean, mixture @ new_std
    given = expected if old_normalization is None else old_normalization
    mean, std = (value.double().expand(kernel.shape[1]) for value in given)
    unchanged = torch.allclose(mean, expected[0]) and torch.allclose(std, expected[1])
    if unchanged and kernel.shape[1] == new_mean.numel():
        return kernel, bias
    weight = torch.einsum("dc...,cn->dn...", kernel.double(), mixture * new_std / std[:, None])
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


def fit_positions(
    tensors: Tensors, grid: tuple[int, ...] | None, target: tuple[int, ...], report: LoadReport
) -> None:
    """
    Leave out the position of a class token, and interpolate the others, in place.

    Args:
        tensors: of the source, by the encoder's names.
        grid: patches along each axis of the source's images; None for the encoder's own, or a square.
        target: patches along each axis of the encoder's images.
        report: names the layout; gets what is resized.
    """
    if POSITIONS not in tensors:
        return
    positions = tensors[POSITIONS].cpu()
    count = positions.shape[1] if positions.ndim == 3 else -1
    tokens = sum(bool(re.search(_CLASS_TOKENS, name)) for name in tensors)
    skips = [skip for skip in (tokens, 0) if skip < count]
    own: list[tuple[int, tuple[int, ...]]] = [(skip, grid or target) for skip in skips]
    square: list[tuple[int, tuple[int, ...]]] = [
        (skip, (math.isqrt(count - skip),) * 2) for skip in skips if not grid
    ]
    # of timm, a square grid behind any number of tokens is likelier than the encoder's own behind one
    possible = square + own if report.layout == TIMM else own + square
    found = [(skip, old) for skip, old in possible if skip + math.prod(old) == count]
    if not found:
        raise ValueError(
            f"{POSITIONS} is {tuple(positions.shape)} with {tokens} class tokens, the encoder's grid is {target}, the "
            f"file's {grid or 'no square'}: build the encoder of its library (timm:NAME)"
        )
    skip, old = found[0]
    tensors[POSITIONS] = positions[:, skip:]
    if old != target:
        tensors[POSITIONS] = resize_position_embedding(positions[:, skip:], old, target)
        sizes = (" x ".join(map(str, each)) for each in (old, target))
        report.resized.append(f"{POSITIONS} of {' patches -> '.join(sizes)}")
