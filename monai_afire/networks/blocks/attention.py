# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Self-attention that is fast on every device, and the transformer stack built on MONAI's blocks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from monai.networks.blocks.selfattention import SABlock
from monai.networks.blocks.transformerblock import TransformerBlock
from torch import nn
from torch.utils.checkpoint import checkpoint


class DeviceSelfAttention(SABlock):
    """
    MONAI's ``SABlock`` with the kernel chosen by device: fused attention on a GPU, explicit products on a CPU.

    MONAI's ``ViT`` does not hand ``use_flash_attention`` on to its blocks, and that flag drops attention weights out
    in evaluation mode too. Parameters and state dict keys are those of ``SABlock``, so weights are interchangeable.
    While the attribute ``save_attn`` is True, products are explicit on every device, and ``att_mat`` holds the weights
    of the last pass ``(B, heads, L, L)`` as in ``SABlock``.

    Args:
        hidden_size: D, width of the tokens.
        num_heads: number of attention heads.
        dropout_rate: dropout of the attention weights and of the output.
        qkv_bias: whether the query/key/value projection has a bias.
        fused: True or False to force a kernel, None to choose by device.

    Example:
        >>> attention = DeviceSelfAttention(hidden_size=32, num_heads=4)
        >>> attention(torch.rand(2, 9, 32)).shape
        torch.Size([2, 9, 32])
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout_rate: float = 0.0,
        qkv_bias: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(hidden_size, num_heads, dropout_rate, qkv_bias)
        self.fused = fused

    def forward(self, x: torch.Tensor, attn_mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Attend over all tokens.

        Args:
            x: ``(B, L, D)``.
            attn_mask: not supported, here for ``TransformerBlock``'s call.

        Returns:
            ``(B, L, D)``.

        Raises:
            NotImplementedError: when a mask is given.
        """
        if attn_mask is not None:
            raise NotImplementedError(
                "DeviceSelfAttention attends over all tokens; attn_mask must be None"
            )
        batch, length, width = x.shape
        qkv = (
            self.qkv(x)
            .reshape(batch, length, 3, self.num_heads, self.dim_head)
            .permute(2, 0, 3, 1, 4)
        )
        query, key, value = qkv.unbind(0)
        fused = x.device.type != "cpu" if self.fused is None else self.fused
        if fused and not self.save_attn:
            dropout = self.dropout_rate if self.training else 0.0
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        else:
            weights = ((query * self.scale) @ key.transpose(-2, -1)).softmax(dim=-1)
            if self.save_attn:
                self.att_mat = weights.detach()
            mixed = self.drop_weights(weights) @ value
        return self.drop_output(self.out_proj(mixed.transpose(1, 2).reshape(batch, length, width)))


def prepare_transformer_blocks(blocks: nn.ModuleList) -> nn.ModuleList:
    """
    Make MONAI's transformer blocks ready for pre-training, in place.

    Gives them :class:`DeviceSelfAttention` (same parameters), Xavier-uniform weights and zero biases, and freezes the
    layer norm that ``TransformerBlock`` keeps for cross-attention and never uses: a parameter without gradient would
    stop distributed training.

    Args:
        blocks: list of ``monai.networks.blocks.TransformerBlock``.

    Returns:
        The same list.

    Example:
        >>> blocks = nn.ModuleList([TransformerBlock(hidden_size=32, mlp_dim=64, num_heads=4)])
        >>> type(prepare_transformer_blocks(blocks)[0].attn).__name__
        'DeviceSelfAttention'
    """
    for block in blocks:
        if not isinstance(block, TransformerBlock):
            raise TypeError(f"expected MONAI transformer blocks, got {type(block).__name__}")
        attention = block.attn
        width = attention.hidden_input_size
        has_bias = attention.qkv.bias is not None
        block.attn = DeviceSelfAttention(
            width, attention.num_heads, attention.dropout_rate, has_bias
        )
        block.norm_cross_attn.requires_grad_(False)
        for layer in block.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
    return blocks


def through_blocks(
    blocks: Iterable[nn.Module], tokens: torch.Tensor, recompute: bool = False
) -> torch.Tensor:
    """
    Tokens through transformer blocks, one after the other.

    Args:
        blocks: each takes and returns tokens.
        tokens: ``(B, L, D)``.
        recompute: keep the tokens between the blocks alone, and compute what happens inside a block again in the
            backward pass: less memory, more time, the same gradients.

    Returns:
        ``(B, L, D)``.

    Example:
        >>> blocks = nn.ModuleList([nn.Linear(8, 8), nn.GELU()])
        >>> through_blocks(blocks, torch.rand(2, 9, 8), recompute=True).shape
        torch.Size([2, 9, 8])
    """
    recompute = recompute and torch.is_grad_enabled()
    for block in blocks:
        tokens = checkpoint(block, tokens, use_reentrant=False) if recompute else block(tokens)
    return tokens
