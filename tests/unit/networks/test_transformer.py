# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Transformer blocks: fused attention against explicit products, initial weights, what is trained."""

from __future__ import annotations

import math

import torch
from monai.networks.blocks.transformerblock import TransformerBlock
from naive.published_step import unfused_attention
from torch import nn

from monai_afire.networks import ViTEncoder
from monai_afire.networks.blocks.transformer import prepare_transformer_blocks
from unit.tiny_networks import tiny_vit


class ExplicitAttention(nn.Module):
    """Softmax of scaled products with the parameters of a block's attention."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.qkv, self.out_proj, self.num_heads = block.qkv, block.out_proj, block.num_heads

    def forward(self, x: torch.Tensor, attn_mask: None = None) -> torch.Tensor:
        parts = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = unfused_attention(*parts)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


def test_fused_attention_equals_softmax_of_products() -> None:
    encoder = tiny_vit(num_heads=3)
    images = torch.rand(3, 1, 32, 32)
    for block in encoder.blocks:
        block.attn.use_flash_attention = True  # as where there is a GPU
    fused = tokens_and_gradients(encoder, images)
    for block in encoder.blocks:
        assert block.attn.use_flash_attention
        block.attn = ExplicitAttention(block.attn)
    tokens, *gradients = tokens_and_gradients(encoder, images)
    torch.testing.assert_close(fused[0], tokens, rtol=0, atol=2e-6)
    for found, expected in zip(fused[1:], gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def tokens_and_gradients(encoder: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    tokens = encoder(images)
    trained = [each for _, each in sorted(encoder.named_parameters()) if each.requires_grad]
    return [tokens, *torch.autograd.grad(tokens.sin().sum(), trained)]


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(2)
    encoder = ViTEncoder(1, 16, 8, 24, num_layers=1, num_heads=2, dropout_rate=0.5)
    images = torch.rand(2, 1, 16, 16)
    assert not torch.equal(encoder(images), encoder(images))
    encoder.eval()
    assert torch.equal(encoder(images), encoder(images))


def test_prepared_blocks() -> None:
    torch.manual_seed(3)
    blocks = nn.ModuleList(TransformerBlock(24, 48, 3, qkv_bias=True) for _ in range(2))
    keys = list(blocks.state_dict())
    prepare_transformer_blocks(blocks)
    assert list(blocks.state_dict()) == keys
    for layer in blocks.modules():
        if isinstance(layer, nn.Linear):
            bound = math.sqrt(6 / sum(layer.weight.shape))
            assert 0.8 * bound < layer.weight.abs().max() <= bound  # Xavier-uniform
            assert layer.bias is None or not layer.bias.any()
    for block in blocks:
        block(torch.randn(2, 4, 24)).sum().backward()
    assert all(p.grad is not None for p in blocks.parameters() if p.requires_grad)
