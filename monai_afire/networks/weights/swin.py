# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Checkpoint filters of the Swin transformer: timm (and the original code), this package."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from monai_afire.networks.weights.filters import CheckpointFilter, Converted, rename_keys
from monai_afire.networks.weights.geometry import resize_position_embedding, source_grid
from monai_afire.networks.weights.patch_embedding import SourceImages, fit_patch_embedding

__all__ = ["SWIN_SOURCES", "fit_swin", "swin_settings"]

TABLE = "attn.relative_position_bias_table"

COMMON_RULES = {
    r"(patch_embed\.(?:proj|norm)|norm)\.(weight|bias)": r"\1.\2",
    r"(layers\.\d+\.blocks\.\d+\.(?:norm[12]|attn\.qkv|attn\.proj))\.(weight|bias)": r"\1.\2",
    r"(layers\.\d+\.blocks\.\d+\.attn\.relative_position_bias_table)": r"\1",
}
TIMM_RULES = COMMON_RULES | {
    r"(layers\.\d+\.blocks\.\d+)\.mlp\.fc([12])\.(weight|bias)": r"\1.mlp.linear\2.\3",
    r"layers\.(\d+)\.downsample\.(norm\.weight|norm\.bias|reduction\.weight)": r"downsamples.\1.\2",
}
OWN_RULES = COMMON_RULES | {
    r"(layers\.\d+\.blocks\.\d+\.mlp\.linear[12])\.(weight|bias)": r"\1.\2",
    r"(downsamples\.\d+\.(?:norm\.weight|norm\.bias|reduction\.weight))": r"\1",
}
DROPPED = r"head|mask_token$|layers\.\d+\.blocks\.\d+\.attn_mask"


def fit_swin(converted: Converted, source: CheckpointFilter, encoder: Any, images: SourceImages) -> None:
    """
    Bring patch embedding and tables of relative positions into the encoder's shapes, in place.

    A table for another window is interpolated (bicubic, antialiased) to the encoder's.

    Args:
        converted: the checkpoint under the encoder's names; changed.
        source: the filter it came through.
        encoder: a ``SwinEncoder``.
        images: what is known about the checkpoint's images; the grid plays no role.

    Raises:
        ValueError: when a shape cannot be made to fit.

    Example:
        >>> from monai_afire.networks.nets.swin_encoder import SwinEncoder
        >>> settings = {"img_size": 64, "patch_size": 4, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}
        >>> small, large = (SwinEncoder(window_size=window, **settings) for window in (4, 8))
        >>> converted = Converted(dict(small.state_dict()))
        >>> fit_swin(converted, SWIN_SOURCES["afire"][0], large, SourceImages())
        >>> converted.tensors["layers.0.blocks.0.attn.relative_position_bias_table"].shape
        torch.Size([225, 1])
    """
    fit_patch_embedding(
        converted, "patch_embed.proj", encoder.patch_embed.proj.weight.shape[2:], source, encoder, images
    )
    for number, layer in enumerate(encoder.layers):
        window = layer.blocks[0].attn.window_size
        resized = [
            _fit_table(converted, f"layers.{number}.blocks.{i}.{TABLE}", window) for i in range(len(layer.blocks))
        ]
        if any(resized):
            converted.resized.append(
                f"layers.{number}.blocks: {sum(resized)} tables of relative positions -> "
                f"window {' x '.join(map(str, window))}"
            )


def swin_settings(tensors: dict[str, torch.Tensor]) -> str:
    """
    The settings of an encoder that such tensors fit, for messages.

    Args:
        tensors: by the encoder's key names.

    Returns:
        Keyword arguments of ``SwinEncoder``.

    Example:
        >>> swin_settings({f"layers.{i}.blocks.0.attn.relative_position_bias_table": torch.ones(9, 2) for i in (0, 1)})
        'depths=(1, 1), num_heads=(2, 2)'
    """
    heads: dict[int, int] = {}
    depths: dict[int, int] = {}
    for name, tensor in tensors.items():
        if name.endswith(TABLE):
            stage = int(name.split(".")[1])
            heads[stage], depths[stage] = tensor.shape[-1], depths.get(stage, 0) + 1
    settings = [f"depths={tuple(depths.values())}", f"num_heads={tuple(heads.values())}"]
    if "patch_embed.norm.weight" in tensors:
        settings.insert(0, f"embed_dim={tensors['patch_embed.norm.weight'].shape[0]}")
    return ", ".join(settings)


def _from_timm(state: Mapping[str, torch.Tensor]) -> Converted:
    result = rename_keys(state, TIMM_RULES, DROPPED, layer_norm_eps=None)
    if any(name.startswith("layers.0.downsample.") for name in state):
        return result  # the original code, and timm before 0.9, merge at the end of a stage
    result.tensors = {
        re.sub(r"^downsamples\.(\d+)", lambda match: f"downsamples.{int(match[1]) - 1}", name): tensor
        for name, tensor in result.tensors.items()
    }
    return result


def _from_own(state: Mapping[str, torch.Tensor]) -> Converted:
    return rename_keys(state, OWN_RULES, DROPPED, layer_norm_eps=None)


def _fit_table(converted: Converted, name: str, window: tuple[int, ...]) -> bool:
    """Resize one table if its window is another; tell whether it was."""
    table, offsets = converted.tensors.get(name), tuple(2 * w - 1 for w in window)
    if table is None or table.shape[0] == math.prod(offsets):
        return False
    found = source_grid(table.shape[0], 0, offsets, same_first=True)
    if found is None:
        raise ValueError(
            f"{name} is {tuple(table.shape)} in the checkpoint, which is no table of a square window; the encoder's "
            f"window is {window}: build the encoder with the checkpoint's window_size and img_size"
        )
    converted.tensors[name] = resize_position_embedding(table[None].cpu(), found[1], offsets)[0]
    return True


TIMM = CheckpointFilter(
    "timm", ("patch_embed.proj.weight",), ("layers.0.blocks.0.mlp.fc1.",), _from_timm, of_photographs=True
)
OWN = CheckpointFilter(
    "afire", ("patch_embed.proj.weight",), ("layers.0.blocks.0.mlp.linear1.",), _from_own, of_photographs=False
)

SWIN_SOURCES: dict[str, tuple[CheckpointFilter, ...]] = {
    "auto": (OWN, TIMM),
    "timm": (TIMM,),
    "afire": (OWN, TIMM),
}
