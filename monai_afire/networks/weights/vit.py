# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Fitting a converted checkpoint to a :class:`ViTEncoder`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from monai_afire.networks.weights.filters import CheckpointFilter, Converted
from monai_afire.networks.weights.geometry import resize_position_embedding, source_grid
from monai_afire.networks.weights.patch_embedding import SourceImages, fit_patch_embedding
from monai_afire.networks.weights.vit_filters import EMBEDDING, POSITIONS

__all__ = ["fit_vit", "vit_settings"]

# heads of the published models by width; the number is not in a state dict
PUBLISHED_HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}


def fit_vit(converted: Converted, source: CheckpointFilter, encoder: Any, images: SourceImages) -> None:
    """
    Bring patch and position embedding into the encoder's shapes, in place; the rest stays as it is.

    Args:
        converted: the checkpoint under the encoder's names; changed.
        source: the filter it came through.
        encoder: a ``ViTEncoder``.
        images: what is known about the checkpoint's images.

    Raises:
        ValueError: when a shape cannot be made to fit.

    Example:
        >>> from monai_afire.networks.nets.vit_encoder import ViTEncoder
        >>> from monai_afire.networks.weights.vit_filters import MONAI
        >>> small, large = (ViTEncoder(img_size=s, hidden_size=24, num_layers=1, num_heads=2) for s in (32, 64))
        >>> converted = Converted(dict(small.state_dict()))
        >>> fit_vit(converted, MONAI, large, SourceImages())
        >>> converted.tensors["patch_embedding.position_embeddings"].shape
        torch.Size([1, 16, 24])
    """
    tensors = converted.tensors
    fit_patch_embedding(converted, EMBEDDING, encoder.patch_size, source, encoder, images)
    if POSITIONS in tensors:
        _fit_positions(converted, source, encoder.grid_size, images.grid)
    heads = None if images.heads_are_known else PUBLISHED_HEADS.get(encoder.hidden_size)
    if source.of_photographs and heads not in (None, encoder.blocks[0].attn.num_heads):
        converted.notes.append(
            f"the encoder has {encoder.blocks[0].attn.num_heads} attention heads, published models of width "
            f"{encoder.hidden_size} have {heads}: a checkpoint does not tell, a wrong number spoils the features"
        )


def vit_settings(tensors: dict[str, torch.Tensor]) -> str:
    """
    The settings of an encoder that such tensors fit, for messages.

    Args:
        tensors: by the encoder's key names.

    Returns:
        Keyword arguments of ``ViTEncoder``.

    Example:
        >>> vit_settings({"norm.weight": torch.ones(8), "blocks.0.mlp.linear1.weight": torch.ones(32, 8)})
        'hidden_size=8, mlp_dim=32, num_layers=1'
    """
    settings = []
    if "norm.weight" in tensors:
        settings.append(f"hidden_size={tensors['norm.weight'].shape[0]}")
    if "blocks.0.mlp.linear1.weight" in tensors:
        settings.append(f"mlp_dim={tensors['blocks.0.mlp.linear1.weight'].shape[0]}")
    numbers = [int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")]
    return ", ".join([*settings, f"num_layers={max(numbers, default=-1) + 1}"])


def _fit_positions(
    converted: Converted, source: CheckpointFilter, target: tuple[int, ...], given_grid: tuple[int, ...] | None
) -> None:
    embedding, prefix_tokens = converted.tensors[POSITIONS].cpu(), converted.prefix_tokens
    found = None
    if embedding.ndim == 3 and given_grid is not None:
        skip = embedding.shape[1] - math.prod(given_grid)
        found = (skip, given_grid) if 0 <= skip <= prefix_tokens and len(given_grid) == len(target) else None
    elif embedding.ndim == 3:
        found = source_grid(embedding.shape[1], prefix_tokens, target, same_first=not source.of_photographs)
    if found is None:
        raise ValueError(
            f"{POSITIONS} is {tuple(embedding.shape)} in the checkpoint (up to {prefix_tokens} of it class or register "
            f"tokens), the encoder's grid is {target}"
            + (f", source_grid is {given_grid}" if given_grid else "")
            + ": pass the checkpoint's number of patches along each axis as source_grid"
        )
    skip, grid = found
    converted.tensors[POSITIONS] = embedding[:, skip:]
    if grid != target:
        converted.tensors[POSITIONS] = resize_position_embedding(embedding[:, skip:], grid, target)
        converted.resized.append(f"{POSITIONS} of {_by(grid)} patches -> {_by(target)}")


def _by(grid: Sequence[int]) -> str:
    return " x ".join(map(str, grid))
