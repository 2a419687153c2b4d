# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Both kernels of the self-attention against each other and against MONAI's."""

from __future__ import annotations

import math

import pytest
import torch
from monai.networks.blocks.selfattention import SABlock
from monai.networks.blocks.transformerblock import TransformerBlock
from naive.published_step import unfused_attention
from torch import nn

from monai_afire.networks.blocks.attention import DeviceSelfAttention, prepare_transformer_blocks


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_fused_equals_explicit_and_monai(
    length: int, qkv_bias: bool, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    monai_block = SABlock(32, 4, qkv_bias=qkv_bias).to(dtype)
    x = torch.randn(3, length, 32, dtype=dtype)
    weights = torch.randn(3, length, 32, dtype=dtype)
    results = []
    for fused in (True, False, None):
        block = DeviceSelfAttention(32, 4, qkv_bias=qkv_bias, fused=fused).to(dtype)
        block.load_state_dict(monai_block.state_dict(), strict=True)
        results.append(outputs_and_gradients(block, x, weights))
    expected = outputs_and_gradients(monai_block, x, weights)
    for result in results:
        for value, reference in zip(result, expected, strict=True):
            torch.testing.assert_close(value, reference, rtol=0, atol=tolerance)


def outputs_and_gradients(
    block: nn.Module, x: torch.Tensor, weights: torch.Tensor
) -> list[torch.Tensor]:
    leaf = x.clone().requires_grad_()
    output = block(leaf)
    return [output, *torch.autograd.grad((output * weights).sum(), [leaf, *block.parameters()])]


def test_explicit_kernel_is_the_softmax_of_scaled_products() -> None:
    torch.manual_seed(1)
    block = DeviceSelfAttention(8, 2, fused=False).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    query, key, value = (
        part.reshape(2, 5, 2, 4).transpose(1, 2) for part in block.qkv(x).chunk(3, dim=-1)
    )
    mixed = unfused_attention(query, key, value).transpose(1, 2).reshape(2, 5, 8)
    expected = block.out_proj(mixed)
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_acts_in_training_only(fused: bool) -> None:
    torch.manual_seed(2)
    block = DeviceSelfAttention(16, 2, dropout_rate=0.5, fused=fused)
    x = torch.randn(2, 6, 16)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def test_masks_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="attn_mask"):
        DeviceSelfAttention(16, 2)(torch.zeros(1, 2, 16), attn_mask=torch.ones(2, 2))


def test_prepared_blocks() -> None:
    torch.manual_seed(3)
    blocks = nn.ModuleList(
        TransformerBlock(24, 48, 3, dropout_rate=0.1, qkv_bias=True) for _ in range(2)
    )
    keys = list(blocks.state_dict())
    prepared = prepare_transformer_blocks(blocks)
    assert prepared is blocks
    assert list(blocks.state_dict()) == keys
    unused = {name for name, p in blocks.named_parameters() if not p.requires_grad}
    assert unused == {
        f"{i}.norm_cross_attn.{part}" for i in range(2) for part in ("weight", "bias")
    }
    for layer in blocks.modules():
        if isinstance(layer, DeviceSelfAttention):
            assert (layer.num_heads, layer.dropout_rate, layer.fused) == (3, 0.1, None)
        if isinstance(layer, nn.Linear):
            bound = math.sqrt(6 / sum(layer.weight.shape))
            assert 0.8 * bound < layer.weight.abs().max() <= bound  # Xavier-uniform
            assert layer.bias is None or not layer.bias.any()
    blocks.eval()
    blocks[0](torch.randn(2, 4, 24)).sum().backward()
    trained = [p for p in blocks[0].parameters() if p.requires_grad]
    assert all(p.grad is not None for p in trained)


def test_other_blocks_are_refused() -> None:
    with pytest.raises(TypeError, match="Linear"):
        prepare_transformer_blocks(nn.ModuleList([nn.Linear(2, 2)]))


@pytest.mark.parametrize("fused", [True, False, None])
def test_attention_weights_are_saved_on_request_as_in_monai(fused: bool | None) -> None:
    torch.manual_seed(0)
    attention = DeviceSelfAttention(hidden_size=32, num_heads=4, fused=fused).eval()
    reference = SABlock(hidden_size=32, num_heads=4, save_attn=True).eval()
    reference.load_state_dict(attention.state_dict())
    x = torch.rand(2, 9, 32)
    before = attention(x)
    assert attention.att_mat.numel() == 0
    attention.save_attn = True
    torch.testing.assert_close(attention(x), before)
    reference(x)
    torch.testing.assert_close(attention.att_mat, reference.att_mat)
    assert not attention.att_mat.requires_grad
