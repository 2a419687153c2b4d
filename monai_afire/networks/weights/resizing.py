# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fitting weights to another image size, patch size, window, number of channels and normalization."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

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

__all__ = ["convert_channels", "fit_swin", "fit_vit", "resize_patch_kernel"]

Normalization = tuple[Any, Any]  # mean and standard deviation, one value or one per channel

_TABLE = "attn.relative_position_bias_table"
_REGISTERS = r"reg_token$|register_tokens$"
_CLASS_TOKENS = r"(cls|dist)_token$"


def fit_vit(
    tensors: Tensors,
    encoder: ViTEncoder,
    normalization: Normalization | None,
    grid: tuple[int, ...] | None,
    report: LoadReport,
) -> None:
    """
    Bring patch and position embedding into the shapes of an encoder, in place; the rest stays as it is.

    Args:
        tensors: of the source, by the encoder's names.
        encoder: left as it is.
        normalization: mean and standard deviation of the source's images; None to go by the layout.
        grid: patches along each axis of the source's images; None to infer it from the position embedding.
        report: names the layout; gets what is resized.
    """
    _fit_patch_embedding(tensors, EMBEDDING, encoder.patch_size, encoder, normalization, report)
    if POSITIONS in tensors:
        _fit_positions(tensors, grid, encoder.grid_size, report)


def fit_swin(
    tensors: Tensors, encoder: SwinEncoder, normalization: Normalization | None, report: LoadReport
) -> None:
    """Bring patch embedding and tables of relative positions into the shapes of an encoder, as :func:`fit_vit`."""
    patch_size = encoder.patch_embed.proj.weight.shape[2:]
    _fit_patch_embedding(tensors, "patch_embed.proj", patch_size, encoder, normalization, report)
    for number, layer in enumerate(encoder.layers):
        blocks: Any = layer.get_submodule("blocks")
        window = blocks[0].attn.window_size
        names = [f"layers.{number}.blocks.{block}.{_TABLE}" for block in range(len(blocks))]
        count = sum(_fit_table(tensors, name, window) for name in names)
        if count:
            size = " x ".join(map(str, window))
            report.resized.append(
                f"layers.{number}.blocks: {count} tables of relative positions -> window {size}"
            )


def _fit_patch_embedding(
    tensors: Tensors,
    layer: str,
    patch_size: Sequence[int],
    encoder: ViTEncoder | SwinEncoder,
    normalization: Normalization | None,
    report: LoadReport,
) -> None:
    """Bring a patch embedding to an encoder's channels, normalization and patch size, in place."""
    name = f"{layer}.weight"
    if name not in tensors:
        return
    old_shape = tuple(tensors[name].shape)
    kernel = _as_kernel(tensors[name], name, patch_size).cpu()
    bias = tensors.get(f"{layer}.bias", torch.zeros(kernel.shape[0], dtype=kernel.dtype)).cpu()
    # one value stands for all channels
    mean, std = (
        value.detach().cpu().flatten().expand(encoder.in_channels)
        for value in (encoder.mean, encoder.std)
    )
    old = _source_normalization(normalization, kernel.shape[1], report)
    kernel, bias = convert_channels(kernel, bias, old, (mean, std))
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


def _source_normalization(
    given: Normalization | None, channels: int, report: LoadReport
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Mean and standard deviation of the source's images; None for those of the encoder."""
    if given is None and report.layout == TIMM and channels == 3:
        given = IMAGENET_MEAN, IMAGENET_STD
        report.notes.append(
            "the patch embedding is converted from ImageNet's normalization of RGB images; if the checkpoint's was "
            "another, pass source_normalization"
        )
    if given is None:
        return None
    mean, std = (torch.as_tensor(value, dtype=torch.float64).flatten() for value in given)
    if not {mean.numel(), std.numel()} <= {1, channels} or not (std > 0).all():
        raise ValueError(
            "source_normalization must be (mean, std > 0), one value or one for each of "
            f"{channels} channels, got {given}"
        )
    return mean, std


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
    old_normalization: tuple[torch.Tensor, torch.Tensor] | None,
    new_normalization: tuple[torch.Tensor, torch.Tensor],
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
        W' ``(D, C', *patch)`` and b' ``(D,)`` in their dtypes; the very tensors given where nothing changes.
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


def _fit_positions(
    tensors: Tensors, grid: tuple[int, ...] | None, target: tuple[int, ...], report: LoadReport
) -> None:
    """Leave out the positions of class and register tokens, and interpolate the others."""
    positions = tensors[POSITIONS].cpu()
    count = positions.shape[1] if positions.ndim == 3 else -1
    registers = _count_tokens(tensors, _REGISTERS)
    before = _count_tokens(tensors, _CLASS_TOKENS) + registers
    if grid is not None:
        possible = [(skip, grid) for skip in range(before + 1)]
    else:
        # all tokens before the patches have positions, or those that are no registers (DINOv2), or none
        skips = [skip for skip in (before, before - registers, 0) if skip < count]
        own = [(skip, tuple(target)) for skip in skips]
        square = [(skip, tuple([math.isqrt(count - skip)] * 2)) for skip in skips]
        # of timm, a square grid behind any number of tokens is likelier than the encoder's own behind one
        possible = square + own if report.layout == TIMM else own + square
    found = [(skip, old) for skip, old in possible if skip + math.prod(old) == count]
    if not found:
        raise ValueError(
            f"{POSITIONS} is {tuple(positions.shape)} with up to {before} class tokens, the encoder's grid is "
            f"{target}, source_grid is {grid}: pass the checkpoint's number of patches as source_grid"
        )
    skip, old = found[0]
    tensors[POSITIONS] = positions[:, skip:]
    if old != target:
        tensors[POSITIONS] = resize_position_embedding(positions[:, skip:], old, target)
        sizes = (" x ".join(map(str, each)) for each in (old, target))
        report.resized.append(f"{POSITIONS} of {' patches -> '.join(sizes)}")


def _count_tokens(tensors: Tensors, pattern: str) -> int:
    """How many tokens the learned ones of some names are."""
    found = [each for name, each in tensors.items() if re.search(pattern, name)]
    return sum(each.shape[1] if each.ndim == 3 else 1 for each in found)


def _fit_table(tensors: Tensors, name: str, window: tuple[int, ...]) -> bool:
    """Resize one table (bicubic, antialiased) if its window is another; return whether it was."""
    table, offsets = tensors.get(name), tuple(2 * w - 1 for w in window)
    if table is None or table.shape[0] == math.prod(offsets):
        return False
    edge = math.isqrt(table.shape[0])
    if edge**2 != table.shape[0]:
        raise ValueError(
            f"{name} is {tuple(table.shape)} in the checkpoint, no table of a square window: build the encoder, whose "
            f"window is {window}, with the checkpoint's window_size and img_size"
        )
    tensors[name] = resize_position_embedding(table[None].cpu(), (edge, edge), offsets)[0]
    return True
