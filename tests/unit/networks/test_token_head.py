# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The projection head against one separate layer per position."""

from __future__ import annotations

import numpy as np
import torch
from naive import afire
from naive.published_step import LoopedLastLayer
from torch.nn import functional as F

from monai_afire.networks import TokenProbabilityHead
from monai_afire.networks.blocks.token_head import PositionwiseLinear


def test_positionwise_layer_equals_the_references() -> None:
    B, L, D, K = 3, 4, 6, 5
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(B, L, D, generator=generator, dtype=torch.float64, requires_grad=True)
    vectors = torch.randn(L, K, D, generator=generator, dtype=torch.float64)
    weights = torch.randn(B, L, K, generator=generator, dtype=torch.float64)
    layer = PositionwiseLinear(L, D, K).double()
    layer.weight.data.copy_(vectors)
    logits = layer(F.normalize(hidden, dim=-1))
    expected = afire.token_probability_head(hidden.detach().numpy(), vectors.numpy())
    np.testing.assert_allclose(logits.detach().numpy(), expected, rtol=0, atol=1e-9)

    by_hidden, by_vectors = torch.autograd.grad((logits * weights).sum(), [hidden, layer.weight])
    looped = LoopedLastLayer(L, D, K).double()
    looped.set_vectors(vectors)
    (looped(hidden) * weights).sum().backward()
    expected_by_hidden = hidden.grad
    assert expected_by_hidden is not None
    torch.testing.assert_close(by_hidden, expected_by_hidden, rtol=0, atol=1e-9)
    gradients = [p.grad for p in looped.parameters() if p.requires_grad and p.grad is not None]
    torch.testing.assert_close(by_vectors, torch.stack(gradients), rtol=0, atol=1e-9)


def test_head_is_mlp_normalization_and_cosines() -> None:
    head = TokenProbabilityHead(in_dim=6, num_tokens=4, num_clusters=5, hidden_dim=8).double()
    tokens = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weights = [parameter.detach() for parameter in head.mlp.parameters()]
    hidden = F.gelu(tokens @ weights[0].T + weights[1]) @ weights[2].T + weights[3]
    expected = afire.token_probability_head(hidden.numpy(), head.last_layer.weight.detach().numpy())
    logits = head(tokens).detach().numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-9)
    assert np.abs(logits).max() <= 1 + 1e-12
