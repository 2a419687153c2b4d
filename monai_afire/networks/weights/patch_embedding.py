# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fitting the patch embedding, which every architecture has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from monai_afire.networks.weights.filters import CheckpointFilter, Converted
from monai_afire.networks.weights.geometry import convert_channels, resize_patch_kernel

__all__ = ["SourceImages", "fit_patch_embedding"]

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class SourceImages:
    """
    What a checkpoint does not tell, foremost of its images, as the user or the header of a file of ours describes them.

    Attributes:
        normalization: mean and standard deviation, one value or one per channel each; None to go by the format.
        grid: patches along each axis; None to tell from the position embedding.
        heads_are_known: the number of attention heads was told, too, and is the encoder's.
    """

    normalization: tuple[Any, Any] | None = None
    grid: tuple[int, ...] | None = None
    heads_are_known: bool = False


def fit_patch_embedding(
    converted: Converted,
    layer: str,
    patch_size: Sequence[int],
    source: CheckpointFilter,
    encoder: Any,
    images: SourceImages,
) -> None:
    """
    Bring a patch embedding to an encoder's channels, normalisation and patch size, in place.

    Args:
        converted: the checkpoint under the encoder's names; changed.
        layer: name of the convolution.
        patch_size: its kernel in the encoder.
        source: the filter that the checkpoint came through.
        encoder: has ``in_channels``, ``mean`` and ``std``.
        images: what is known about the checkpoint's images.

    Raises:
        ValueError: when it cannot be made to fit, or the normalisation is out of range.

    Example:
        >>> from monai_afire.networks.nets.vit_encoder import ViTEncoder
        >>> from monai_afire.networks.weights.vit_filters import TIMM
        >>> encoder = ViTEncoder(img_size=32, hidden_size=24, num_layers=1, num_heads=2)
        >>> converted = Converted({"proj.weight": torch.rand(24, 3, 14, 14), "proj.bias": torch.rand(24)})
        >>> fit_patch_embedding(converted, "proj", (16, 16), TIMM, encoder, SourceImages())
        >>> converted.resized
        ['proj.weight (24, 3, 14, 14) -> (24, 1, 16, 16)']
    """
    tensors = converted.tensors
    name = f"{layer}.weight"
    if name not in tensors:
        return
    old_shape = tuple(tensors[name].shape)
    kernel = _as_kernel(tensors[name], name, patch_size)
    bias = tensors.get(f"{layer}.bias", torch.zeros(kernel.shape[0], dtype=kernel.dtype))
    normalization = images.normalization
    if normalization is None and source.of_photographs and kernel.shape[1] == 3:
        normalization = IMAGENET
        converted.notes.append(
            "the patch embedding is converted from ImageNet's normalisation of RGB images; if the checkpoint's was "
            "another, pass source_normalization"
        )
    old = None if normalization is None else _normalization(normalization, kernel.shape[1])
    # one value stands for all channels
    mean, std = (value.detach().cpu().flatten().expand(encoder.in_channels) for value in (encoder.mean, encoder.std))
    kernel, bias = convert_channels(kernel.cpu(), bias.cpu(), old, (mean, std))
    if kernel.shape[2:] != tuple(patch_size):
        kernel = resize_patch_kernel(kernel, tuple(patch_size))
    tensors[name], tensors[f"{layer}.bias"] = kernel, bias
    if tuple(kernel.shape) != old_shape:
        converted.resized.append(f"{name} {old_shape} -> {tuple(kernel.shape)}")


def _as_kernel(weight: torch.Tensor, name: str, patch_size: Sequence[int]) -> torch.Tensor:
    """A convolution's kernel ``(D, C, *patch)``, from a perceptron's ``(D, *patch x C)`` too."""
    if weight.ndim == 2 and weight.shape[1] % math.prod(patch_size) == 0:
        return weight.reshape(weight.shape[0], *patch_size, -1).movedim(-1, 1)
    if weight.ndim != 2 + len(patch_size):
        raise ValueError(
            f"{name} is {tuple(weight.shape)} in the checkpoint, the encoder's patches are "
            f"{tuple(patch_size)}: build the encoder with the checkpoint's spatial_dims and patch_size"
        )
    return weight


def _normalization(normalization: tuple[Any, Any], channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    mean, std = (torch.as_tensor(value, dtype=torch.float64).flatten() for value in normalization)
    if mean.numel() not in (1, channels) or std.numel() not in (1, channels) or not (std > 0).all():
        raise ValueError(
            f"source_normalization must be (mean, std > 0), each one value or one for each of the checkpoint's "
            f"{channels} channels, got {normalization}"
        )
    return mean, std
