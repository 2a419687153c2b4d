# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a step keeps for its backward pass, with the same gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from monai_afire.losses import ACELoss
from monai_afire.networks.blocks.restoration_decoder import RestorationDecoder


def kept_bytes(function: Callable[[], torch.Tensor], but: set[int] = frozenset()) -> int:  # type: ignore[assignment]
    """Bytes of the storages that autograd keeps for the backward pass, without those at the addresses of ``but``."""
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in but:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = function()
    assert result.requires_grad
    return sum(kept.values())


def addresses(network: nn.Module) -> set[int]:
    return {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}


def test_a_decoder_keeps_the_tokens_between_its_blocks_alone() -> None:
    kept, gradients = [], []
    tokens, hidden = torch.rand(2, 64, 12), torch.rand(2, 64) > 0.5
    for use_checkpoint in (False, True):
        torch.manual_seed(0)
        decoder = RestorationDecoder(12, (8, 8), 8, 24, 3, 2, use_checkpoint=use_checkpoint)
        kept.append(
            kept_bytes(lambda decoder=decoder: decoder(tokens, hidden).sum(), addresses(decoder))
        )
        decoder(tokens, hidden).square().mean().backward()
        gradients.append(
            [parameter.grad for parameter in decoder.parameters() if parameter.grad is not None]
        )
    assert 5 * kept[1] < kept[0]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_matching_keeps_nothing_as_large_as_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monai_afire.losses.ace.PAIRS_AT_ONCE", 64 * 256)
    offset = torch.zeros(4, 2, dtype=torch.int64)
    logits = torch.rand(4, 64, 256, requires_grad=True)
    outputs = {"offset_1": offset, "offset_2": offset, "decomposition_logits": logits}
    loss = ACELoss(global_weight=0, composition_weight=0)
    assert (
        kept_bytes(lambda: loss(outputs), {logits.untyped_storage().data_ptr()})
        < logits.nbytes / 10
    )
