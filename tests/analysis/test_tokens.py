# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Tokens batch by batch: those of one pass, in order; none of none; the encoder is left as it was."""

from __future__ import annotations

import pytest
import torch
from tqdm.auto import tqdm

from monai_afire.analysis import mean_tokens, reduced_tokens
from monai_afire.networks import ViTEncoder


@pytest.fixture
def encoder() -> ViTEncoder:
    torch.manual_seed(0)
    return ViTEncoder(img_size=16, patch_size=8, hidden_size=12, num_layers=1, num_heads=2)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 20])
def test_batches_are_those_of_one_pass(encoder: ViTEncoder, batch_size: int) -> None:
    images = torch.rand(7, 1, 16, 16, dtype=torch.float64)  # taken in the encoder's own precision
    encoder.train()
    with tqdm(total=7, disable=True) as bar:
        found = reduced_tokens(encoder, 7, lambda rows: images[rows], lambda tokens: tokens[:, 1:], batch_size, bar)
    assert encoder.training
    assert not found.requires_grad
    expected = encoder.eval()(images.float())
    torch.testing.assert_close(found, expected[:, 1:])
    torch.testing.assert_close(mean_tokens(encoder, 7, lambda rows: images[rows], batch_size), expected.mean(1))


def test_each_picture_is_asked_for_once(encoder: ViTEncoder) -> None:
    asked: list[int] = []

    def pictures(rows: slice) -> torch.Tensor:
        asked.extend(range(rows.start, rows.stop))
        return torch.zeros(rows.stop - rows.start, 1, 16, 16)

    mean_tokens(encoder, 8, pictures, batch_size=3)
    assert asked == list(range(8))


def test_no_picture_has_no_tokens(encoder: ViTEncoder) -> None:
    nothing = torch.empty(0, 1, 16, 16)
    assert mean_tokens(encoder, 0, lambda rows: nothing[rows]).shape == (0, 12)
    assert reduced_tokens(encoder, 0, lambda rows: nothing[rows], lambda tokens: tokens[:, :2]).shape == (0, 2, 12)
