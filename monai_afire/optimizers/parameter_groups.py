# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which parameters an optimizer decays."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["weight_decay_groups"]


def weight_decay_groups(network: nn.Module, weight_decay: float = 0.04) -> list[dict[str, Any]]:
    """
    Split the trainable parameters into those with weight decay and those without.

    Biases, norms and everything else of one dimension are not decayed, nor are mask tokens and position embeddings.

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
            token_like = name.endswith(("mask_tokens", "position_embeddings", "cls_token"))
            (exempt if parameter.ndim <= 1 or token_like else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": exempt, "weight_decay": 0.0}]
