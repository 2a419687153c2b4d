# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Complementary masks, and restoration of every token from the others."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from monai_afire.detection.masked_restoration import MaskedRestorationInferer, complementary_masks
from monai_afire.networks import AFiRe, ViTEncoder

grids = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)
SETTINGS = [(2, 1), (3, 1), (2, 2), (4, 1)]


def make_network(img_size: tuple[int, ...] = (32, 48), seed: int = 0) -> AFiRe:
    torch.manual_seed(seed)
    encoder = ViTEncoder(img_size=img_size, patch_size=8, hidden_size=24, num_layers=1, num_heads=2)
    network = AFiRe(
        encoder, num_clusters=6, head_dim=12, decoder_dim=24, decoder_layers=2, decoder_heads=2
    )
    for (
        parameter
    ) in network.decoder.parameters():  # small initial weights would hide a wrong dependence
        torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


# ---- masks


def can_hide(grid: tuple[int, ...], stride: int, block: int) -> bool:
    """At least two colors occur on the board, or there is but one field."""
    return math.prod(grid) == 1 or (stride > 1 and max(grid) > block)


@given(grids, st.integers(1, 4), st.integers(1, 3))
def test_every_token_is_hidden_once(grid: tuple[int, ...], stride: int, block: int) -> None:
    assume(can_hide(grid, stride, block))
    masks = complementary_masks(grid, stride, block)
    assert masks.dtype == torch.bool
    assert masks.shape[1] == math.prod(grid)
    assert masks.sum(0).eq(1).all()
    assert masks.any(1).all()  # no pass in vain
    assert 1 <= len(masks) <= stride ** len(grid)
    if len(masks) > 1:
        assert not masks.all(1).any()


@given(grids, st.integers(2, 4), st.integers(1, 3))
def test_hidden_blocks_are_far_apart(grid: tuple[int, ...], stride: int, block: int) -> None:
    assume(can_hide(grid, stride, block))
    places = list(itertools.product(*map(range, grid)))
    for mask in complementary_masks(grid, stride, block):
        hidden = [place for place, chosen in zip(places, mask.tolist(), strict=True) if chosen]
        for one, other in itertools.combinations(hidden, 2):
            same_block = all(a // block == b // block for a, b in zip(one, other, strict=True))
            distance = max(abs(a - b) for a, b in zip(one, other, strict=True))
            assert distance < block if same_block else distance > (stride - 1) * block


def test_masks_by_hand() -> None:
    assert complementary_masks((2, 4)).int().tolist() == [
        [1, 0, 1, 0, 0, 0, 0, 0],
        [0, 1, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 0, 1],
    ]
    assert complementary_masks((6,), stride=2, block=2).int().tolist() == [
        [1, 1, 0, 0, 1, 1],
        [0, 0, 1, 1, 0, 0],
    ]
    assert complementary_masks((5,), stride=3).int().tolist() == [
        [1, 0, 0, 1, 0],
        [0, 1, 0, 0, 1],
        [0, 0, 1, 0, 0],
    ]
    assert complementary_masks((1, 1)).tolist() == [[True]]


@pytest.mark.parametrize(("stride", "block"), [(1, 1), (2, 4), (3, 9)])
def test_hiding_everything_is_refused(stride: int, block: int) -> None:
    with pytest.raises(ValueError, match=r"hide all 12 tokens of the grid \(4, 3\) at once"):
        complementary_masks((4, 3), stride, block)


# ---- restoration


@torch.no_grad()
def naive_restoration(
    network: AFiRe, tokens: torch.Tensor, stride: int, block: int
) -> torch.Tensor:
    """One call of the decoder for each pass and each image."""
    grid = network.encoder.grid_size
    patches = []
    for image in tokens:
        rows: list[Any] = [None] * image.shape[0]
        for phase in itertools.product(range(stride), repeat=len(grid)):
            places = itertools.product(*map(range, grid))
            hidden = [
                tuple(index // block % stride for index in place) == phase for place in places
            ]
            restored = network.decoder(image[None], torch.tensor(hidden)[None])[0]
            for token, is_hidden in enumerate(hidden):
                if is_hidden:
                    assert rows[token] is None
                    rows[token] = restored[token]
        patches.append(torch.stack(rows))
    return torch.stack(patches)


@pytest.mark.parametrize(("stride", "block"), SETTINGS)
@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_restoration_equals_a_loop(stride: int, block: int, batch: int) -> None:
    network = make_network()
    tokens = torch.randn(batch, 24, 24)
    restored = MaskedRestorationInferer(stride, block).restore_patches(tokens, network)
    torch.testing.assert_close(
        restored, naive_restoration(network, tokens, stride, block), rtol=1e-4, atol=1e-5
    )


@torch.no_grad()
def test_images_are_put_together_from_their_patches() -> None:
    network, images = make_network(), torch.rand(2, 1, 32, 48)
    restored = MaskedRestorationInferer()(images, network)
    assert restored.shape == images.shape
    patches = naive_restoration(network, network.encoder(images), 2, 1)
    for image, token in itertools.product(range(2), range(24)):
        row, column = divmod(token, 6)
        pixels = network.encoder.denormalize(patches[image, token].reshape(1, 1, 8, 8))
        found = restored[image, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        torch.testing.assert_close(found, pixels[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stride", "block"), SETTINGS)
def test_a_hidden_token_does_not_influence_its_own_restoration(stride: int, block: int) -> None:
    network = make_network()
    masks = complementary_masks(network.encoder.grid_size, stride, block)
    tokens = torch.randn(1, 24, 24, requires_grad=True)
    restored = MaskedRestorationInferer(stride, block).restore_patches(tokens, network)
    for token in range(0, 24, 5):
        (gradient,) = torch.autograd.grad(
            restored[0, token].square().sum(), tokens, retain_graph=True
        )
        influence = gradient[0].abs().sum(-1)
        (hidden,) = masks[masks[:, token]]
        assert influence[hidden].eq(0).all()  # neither by itself nor by what is hidden with it
        assert influence[~hidden].gt(0).all()


def test_infinities_of_other_passes_stay_out() -> None:
    def decoder(tokens: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return torch.where(hidden.unsqueeze(-1), tokens, math.inf)

    network: Any = SimpleNamespace(decoder=decoder, encoder=SimpleNamespace(grid_size=(2, 3)))
    tokens = torch.randn(2, 6, 5)
    assert torch.equal(MaskedRestorationInferer().restore_patches(tokens, network), tokens)
