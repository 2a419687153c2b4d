# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The decoder hides abnormal tokens and restores every patch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from monai_afire.networks.blocks.restoration_decoder import RestorationDecoder


def tiny_decoder(**changes: Any) -> RestorationDecoder:
    torch.manual_seed(0)
    return RestorationDecoder(6, (2, 3), 5, 16, 2, 2, **changes).double()


def random_tokens(batch: int = 2, length: int = 6) -> torch.Tensor:
    return torch.randn(
        batch, length, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


@pytest.mark.parametrize("per_position", [True, False])
def test_hidden_tokens_are_replaced_before_anything_is_mixed(per_position: bool) -> None:
    decoder = tiny_decoder(mask_token_per_position=per_position)
    assert decoder.mask_tokens.shape == (1, 6 if per_position else 1, 16)
    tokens = random_tokens()
    hidden = torch.tensor([[True, False, False, True, False, False], [False] * 6])
    x = tokens @ decoder.projection.weight.T + decoder.projection.bias
    for j in (0, 3):
        x[0, j] = decoder.mask_tokens[0, j if per_position else 0]
    x = x + decoder.position_embeddings
    for block in decoder.blocks:
        x = block(x)
    expected = decoder.norm(x) @ decoder.to_pixels.weight.T + decoder.to_pixels.bias
    torch.testing.assert_close(decoder(tokens, hidden), expected, rtol=0, atol=1e-12)


def test_no_output_depends_on_a_hidden_token() -> None:
    decoder, tokens = tiny_decoder(), random_tokens().requires_grad_()
    hidden = torch.tensor([[True, False, True, False, False, False], [False] * 5 + [True]])
    (gradient,) = torch.autograd.grad(decoder(tokens, hidden).square().sum(), tokens)
    assert not gradient[hidden].any()
    assert (gradient[~hidden].abs().amax(-1) > 0).all()
    changed = torch.where(hidden.unsqueeze(-1), 100.0, tokens.detach())
    assert torch.equal(decoder(changed, hidden), decoder(tokens, hidden))
    assert not torch.equal(decoder(changed), decoder(tokens))
