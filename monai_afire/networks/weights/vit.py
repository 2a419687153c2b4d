# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights for ViTs: key names of timm and MONAI, and the fit of position and patch embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from monai_afire.networks.blocks.position_embedding import resize_position_embedding
from monai_afire.networks.weights.filters import CheckpointFilter, Conversion
from monai_afire.networks.weights.resizing import fit_patch_embedding, source_grid

__all__ = ["VIT_FORMATS", "fit_vit", "vit_arguments"]

EMBEDDING = "patch_embedding.patch_embeddings"
POSITIONS = "patch_embedding.position_embeddings"

TIMM_RULES = {
    r"patch_embed\.proj\.(weight|bias)": rf"{EMBEDDING}.\1",
    r"pos_embed": POSITIONS,
    r"(blocks\.\d+\.norm[12]|blocks\.\d+\.attn\.qkv|norm|fc_norm)\.(weight|bias)": r"\1.\2",
    r"(blocks\.\d+)\.attn\.proj\.(weight|bias)": r"\1.attn.out_proj.\2",
    r"(blocks\.\d+)\.mlp\.fc([12])\.(weight|bias)": r"\1.mlp.linear\2.\3",
    r"(blocks\.\d+)\.(?:ls([12])\.gamma|gamma_([12]))": r"\1.layer_scale\2\3",
}
TIMM_DROPPED = r"(cls|dist|reg|mask)_token$|register_tokens$|head|decoder_|pre_logits"

# a perceptron's linear layer stands behind a reshaping layer
MONAI_RULES = {
    r"patch_embedding\.patch_embeddings\.1\.(weight|bias)": rf"{EMBEDDING}.\1",
    r"(.+)": r"\1",
}
MONAI_DROPPED = r"cls_token$|classification_head\.|blocks\.\d+\.cross_attn\.|conv3d_transpose"

# heads of the published models by width; the number is not in a state dict
PUBLISHED_HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}


def _finish_timm(conversion: Conversion) -> None:
    tensors, report = conversion.tensors, conversion.report
    for part in ("weight", "bias"):
        pooled = tensors.pop(f"fc_norm.{part}", None)
        if pooled is not None and f"norm.{part}" in tensors:
            report.dropped.append(f"fc_norm.{part}")
        elif pooled is not None:
            tensors[f"norm.{part}"] = pooled
            report.notes.append(
                f"fc_norm.{part}, made for the mean of the tokens, is used for each token"
            )
    _fold_layer_scale(conversion)


def _fold_layer_scale(conversion: Conversion) -> None:
    """Multiply LayerScale's factors into the layer before it, which is exact."""
    tensors = conversion.tensors
    scales = [name for name in tensors if ".layer_scale" in name]
    for name in scales:
        scale = tensors.pop(name)
        block, number = name.split(".layer_scale")
        layer = f"{block}.attn.out_proj" if number == "1" else f"{block}.mlp.linear2"
        for key, shape in ((f"{layer}.weight", (-1, 1)), (f"{layer}.bias", (-1,))):
            if key in tensors:
                tensors[key] = tensors[key] * scale.reshape(shape)
    if scales:
        conversion.report.notes.append(
            f"{len(scales)} LayerScale factors are multiplied into the weights"
        )


TIMM = CheckpointFilter(
    "timm",
    ("patch_embed.proj.weight",),
    ("blocks.0.",),
    TIMM_RULES,
    TIMM_DROPPED,
    True,
    1e-6,
    finish=_finish_timm,
)
# this package's, a perceptron's, and the first layer of a convolutional stem
MONAI_ANCHORS = (f"{EMBEDDING}.weight", f"{EMBEDDING}.1.weight", f"{EMBEDDING}.0.conv.weight")
MONAI = CheckpointFilter(
    "monai", MONAI_ANCHORS, ("blocks.0.",), MONAI_RULES, MONAI_DROPPED, of_photographs=False
)

VIT_FORMATS = (MONAI, TIMM)


def fit_vit(conversion: Conversion, encoder: Any) -> None:
    """
    Bring patch and position embedding into the encoder's shapes, in place; the rest stays as it is.

    Args:
        conversion: the checkpoint under the encoder's names; changed.
        encoder: a ``ViTEncoder``.

    Raises:
        ValueError: when a shape cannot be made to fit.

    Example:
        >>> from monai_afire.networks.nets.encoders.vit_encoder import ViTEncoder
        >>> from monai_afire.networks.weights.report import LoadReport
        >>> small, large = (ViTEncoder(img_size=s, hidden_size=24, num_layers=1, num_heads=2) for s in (32, 64))
        >>> conversion = Conversion(MONAI, dict(small.state_dict()), LoadReport("vit.pt", "monai"))
        >>> fit_vit(conversion, large)
        >>> conversion.tensors["patch_embedding.position_embeddings"].shape
        torch.Size([1, 16, 24])
    """
    fit_patch_embedding(conversion, EMBEDDING, encoder.patch_size, encoder)
    if POSITIONS in conversion.tensors:
        _fit_positions(conversion, encoder.grid_size)
    heads, published = encoder.blocks[0].attn.num_heads, PUBLISHED_HEADS.get(encoder.hidden_size)
    if (
        conversion.source.of_photographs
        and conversion.num_heads is None
        and published not in (None, heads)
    ):
        conversion.report.notes.append(
            f"the encoder has {heads} attention heads, published models of width {encoder.hidden_size} have "
            f"{published}; a checkpoint does not hold the number, and a wrong one spoils the features"
        )


def vit_arguments(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """
    Arguments of ``ViTEncoder`` that show in its tensors.

    Args:
        tensors: by the encoder's key names.

    Returns:
        "num_layers", and where the tensors are there "hidden_size" and "mlp_dim".

    Example:
        >>> vit_arguments({"norm.weight": torch.ones(8), "blocks.0.mlp.linear1.weight": torch.ones(32, 8)})
        {'hidden_size': 8, 'mlp_dim': 32, 'num_layers': 1}
    """
    widths = {"hidden_size": "norm.weight", "mlp_dim": "blocks.0.mlp.linear1.weight"}
    arguments = {
        argument: tensors[name].shape[0] for argument, name in widths.items() if name in tensors
    }
    numbers = [int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")]
    return {**arguments, "num_layers": max(numbers, default=-1) + 1}


def _fit_positions(conversion: Conversion, target: tuple[int, ...]) -> None:
    embedding = conversion.tensors[POSITIONS].cpu()
    found = _grid_of_positions(conversion, embedding, target)
    if found is None:
        tokens = f"up to {conversion.prefix_tokens} class tokens"
        shapes = f"{tuple(embedding.shape)} with {tokens}, the encoder's grid is {target}"
        remedy = "pass the checkpoint's number of patches as source_grid"
        raise ValueError(f"{POSITIONS} is {shapes}, source_grid is {conversion.grid}: {remedy}")
    skip, grid = found
    conversion.tensors[POSITIONS] = embedding[:, skip:]
    if grid != target:
        conversion.tensors[POSITIONS] = resize_position_embedding(embedding[:, skip:], grid, target)
        old, new = (" x ".join(map(str, each)) for each in (grid, target))
        conversion.report.resized.append(f"{POSITIONS} of {old} patches -> {new}")


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
    if 0 <= skip <= prefix_tokens and len(grid) == len(target):
        return skip, grid
    return None
