# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Complementary masks, and restoration of every token from the others."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from monai_afire.detection.masked_restoration import complementary_masks, restore_masked
from monai_afire.networks import AFiRe
from unit.tiny_networks import tiny_vit

grids = st.tuples(st.integers(1, 7), st.integers(1, 7))


def make_network() -> AFiRe:
    torch.manual_seed(0)
    network = AFiRe(tiny_vit(img_size=(32, 48)), 6, 12, 24, decoder_layers=2, decoder_heads=2)
    # small initial weights would hide a wrong dependence
    for parameter in network.decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


@given(grids)
def test_every_token_is_hidden_once_and_no_two_neighbors_together(grid: tuple[int, int]) -> None:
    masks = complementary_masks(grid)
    assert masks.dtype == torch.bool
    assert masks.shape[1] == math.prod(grid)
    assert masks.sum(0).eq(1).all()
    assert masks.any(1).all()  # no pass in vain
    places = list(itertools.product(*map(range, grid)))
    for mask in masks.tolist():
        hidden = [place for place, chosen in zip(places, mask, strict=True) if chosen]
        for one, other in itertools.combinations(hidden, 2):
            assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 1


@torch.no_grad()
def naive_restoration(network: AFiRe, tokens: torch.Tensor) -> torch.Tensor:
    """One call of the decoder for each pass and each image."""
    grid = network.encoder.grid_size
    patches = []
    for image in tokens:
        rows: list[Any] = [None] * image.shape[0]
        for phase in itertools.product(range(2), repeat=2):
            places = itertools.product(*map(range, grid))
            hidden = [tuple(index % 2 for index in place) == phase for place in places]
            restored = network.decoder(image[None], torch.tensor(hidden)[None])[0]
            for token, is_hidden in enumerate(hidden):
                if is_hidden:
                    assert rows[token] is None
                    rows[token] = restored[token]
        patches.append(torch.stack(rows))
    return torch.stack(patches)


@torch.no_grad()
def test_restoration_equals_a_loop() -> None:
    network, tokens = make_network(), torch.randn(3, 24, 24)
    expected = naive_restoration(network, tokens)
    torch.testing.assert_close(restore_masked(tokens, network), expected, rtol=1e-4, atol=1e-5)
