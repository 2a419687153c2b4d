# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Parameter groups with and without weight decay."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["is_decayed", "weight_decay_groups"]

_TOKENS = (
    "mask_tokens",
    "mask_token",
    "position_embeddings",
    "pos_embed",
    "cls_token",
    "dist_token",
    "distillation_token",
    "reg_token",
    "register_tokens",
)


def is_decayed(name: str, parameter: nn.Parameter) -> bool:
    """
    Whether weight decay applies to a parameter.

    Biases, norms and everything else of one dimension are not decayed, nor are mask, class and register tokens and
    position embeddings, by the names that MONAI, timm and transformers give them.

    Args:
        name: its name in the network.
        parameter: the parameter itself.

    Returns:
        True for the weights of linear layers and convolutions and the like.

    Example:
        >>> {name: is_decayed(name, parameter) for name, parameter in nn.Linear(3, 2).named_parameters()}
        {'weight': True, 'bias': False}
    """
    return parameter.ndim > 1 and not name.endswith(_TOKENS)


def weight_decay_groups(network: nn.Module, weight_decay: float = 0.04) -> list[dict[str, Any]]:
    """
    Split the trainable parameters into those with weight decay and those without, by :func:`is_decayed`.

    Args:
        network: its parameters with ``requires_grad`` are taken.
        weight_decay: decay of the first group.

    Returns:
        Two groups for an optimizer: decayed first, not decayed second. A schedule of the decay sets the first.

    Example:
        >>> groups = weight_decay_groups(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)), weight_decay=0.1)
        >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
        [(1, 0.1), (3, 0.0)]
    """
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            (decayed if is_decayed(name, parameter) else exempt).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": exempt, "weight_decay": 0.0}]
