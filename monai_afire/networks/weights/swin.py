# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Weights for Swin transformers: the fit of tables of relative positions and patch embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from monai_afire.networks.blocks.position_embedding import resize_position_embedding
from monai_afire.networks.weights.filters import CheckpointFilter, Conversion
from monai_afire.networks.weights.resizing import fit_patch_embedding, source_grid

__all__ = ["SWIN_FORMATS", "fit_swin", "swin_arguments"]

TABLE = "attn.relative_position_bias_table"

DROPPED = r"head|mask_token$|layers\.\d+\.blocks\.\d+\.attn_mask"


ANCHOR = ("patch_embed.proj.weight",)
BLOCK = "layers.0.blocks.0.mlp."
OWN = CheckpointFilter(
    "afire", ANCHOR, (f"{BLOCK}linear1.",), {r"(.+)": r"\1"}, DROPPED, of_photographs=False
)

SWIN_FORMATS = (OWN,)


def fit_swin(conversion: Conversion, encoder: Any) -> None:
    """
    Bring patch embedding and tables of relative positions into the encoder's shapes, in place.

    A table for another window is interpolated (bicubic, antialiased) to the encoder's.

    Args:
        conversion: the checkpoint under the encoder's names; changed.
        encoder: a ``SwinEncoder``.

    Raises:
        ValueError: when a shape cannot be made to fit.

    Example:
        >>> from monai_afire.networks.nets.encoders.swin_encoder import SwinEncoder
        >>> from monai_afire.networks.weights.report import LoadReport
        >>> settings = {"img_size": 64, "patch_size": 4, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}
        >>> small, large = (SwinEncoder(window_size=window, **settings) for window in (4, 8))
        >>> conversion = Conversion(OWN, dict(small.state_dict()), LoadReport("swin.pt", "afire"))
        >>> fit_swin(conversion, large)
        >>> conversion.tensors["layers.0.blocks.0.attn.relative_position_bias_table"].shape
        torch.Size([225, 1])
    """
    fit_patch_embedding(
        conversion, "patch_embed.proj", encoder.patch_embed.proj.weight.shape[2:], encoder
    )
    for number, layer in enumerate(encoder.layers):
        window = layer.blocks[0].attn.window_size
        names = [f"layers.{number}.blocks.{block}.{TABLE}" for block in range(len(layer.blocks))]
        count = sum(_fit_table(conversion.tensors, name, window) for name in names)
        if count:
            conversion.report.resized.append(
                f"layers.{number}.blocks: {count} tables of relative positions -> window {' x '.join(map(str, window))}"
            )


def swin_arguments(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """
    Arguments of ``SwinEncoder`` that show in its tensors: all but the window.

    Args:
        tensors: by the encoder's key names.

    Returns:
        "embed_dim", "depths" and "num_heads", the first only if there is a patch embedding.

    Example:
        >>> swin_arguments({f"layers.{i}.blocks.0.attn.relative_position_bias_table": torch.ones(9, 2) for i in (0, 1)})
        {'depths': [1, 1], 'num_heads': [2, 2]}
    """
    heads: dict[str, int] = {}
    depths: dict[str, int] = {}
    for name, tensor in tensors.items():
        if name.endswith(TABLE):
            stage = name.split(".")[1]
            heads[stage], depths[stage] = tensor.shape[-1], depths.get(stage, 0) + 1
    norm = tensors.get("patch_embed.norm.weight")
    width = {} if norm is None else {"embed_dim": norm.shape[0]}
    return {**width, "depths": list(depths.values()), "num_heads": list(heads.values())}


def _fit_table(tensors: dict[str, torch.Tensor], name: str, window: tuple[int, ...]) -> bool:
    """Resize one table if its window is another; return whether it was."""
    table, offsets = tensors.get(name), tuple(2 * w - 1 for w in window)
    if table is None or table.shape[0] == math.prod(offsets):
        return False
    found = source_grid(table.shape[0], 0, offsets, same_first=True)
    if found is None:
        remedy = f"build the encoder, whose window is {window}, with the checkpoint's window_size and img_size"
        raise ValueError(
            f"{name} is {tuple(table.shape)} in the checkpoint, no table of a square window: {remedy}"
        )
    tensors[name] = resize_position_embedding(table[None].cpu(), found[1], offsets)[0]
    return True
