# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Transformer blocks: fused attention, initial weights, what is trained."""

from __future__ import annotations

import math

import pytest
import torch
from monai.networks.blocks.transformerblock import TransformerBlock
from torch import nn

from monai_afire.networks.blocks.transformer import prepare_transformer_blocks
from unit.tiny_networks import tiny_vit


@pytest.mark.parametrize("dropout_rate", [0.0, 0.5])
def test_attention_is_fused_on_gpus_where_nothing_is_dropped(
    dropout_rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MONAI's flag drops weights in evaluation, too."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    encoder = tiny_vit(dropout_rate=dropout_rate).eval()
    assert encoder.blocks[0].attn.use_flash_attention == (dropout_rate == 0)
    images = torch.rand(2, 1, 32, 32)
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
