# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Stacks of MONAI's transformer blocks: fused attention, initial weights (also of heads), recomputed activations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from monai.networks.blocks import SABlock
from torch import nn
from torch.utils.checkpoint import checkpoint


def init_linear(module: nn.Module) -> None:
    """Give a linear layer weights of standard deviation 0.02 and biases of 0; other modules stay as they are."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def prepare_transformer_blocks(blocks: nn.ModuleList) -> nn.ModuleList:
    """
    Make MONAI's transformer blocks ready for pre-training, in place.

    They get fused attention (where there is no dropout: MONAI's flag drops weights in evaluation mode, too),
    Xavier-uniform weights and zero biases. The layer norm for cross-attention, which is never used, is frozen: a
    parameter without gradient would stop distributed training. State dict keys stay.
    """
    for block in blocks:
        block.attn = _fused(block.attn)
        block.norm_cross_attn.requires_grad_(False)
        for layer in block.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
    return blocks


def _fused(attention: Any) -> SABlock:
    """
    The same attention with PyTorch's fused kernel, which MONAI's ``ViT`` does not offer, where there is a GPU.

    On CPUs explicit products take half the time of the fused kernel in bfloat16.
    """
    return SABlock(
        attention.hidden_input_size,
        attention.num_heads,
        attention.dropout_rate,
        qkv_bias=attention.qkv.bias is not None,
        use_flash_attention=attention.dropout_rate == 0 and torch.cuda.is_available(),
    )


def through_blocks(
    blocks: Iterable[nn.Module], tokens: torch.Tensor, recompute: bool = False
) -> torch.Tensor:
    """
    Tokens ``(B, L, D)`` through transformer blocks, one after the other.

    With ``recompute``, only the tokens between blocks are kept, and what happens inside a block is computed again in
    the backward pass: less memory, more time, the same gradients.
    """
    recompute = recompute and torch.is_grad_enabled()
    for block in blocks:
        tokens = checkpoint(block, tokens, use_reentrant=False) if recompute else block(tokens)
    return tokens
