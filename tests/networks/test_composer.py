# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Composer and decomposer: which tokens make a patch, and in which order its parts stand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from monai_afire.networks.blocks.composition_heads import (
    Composer,
    Decomposer,
    gather_parts,
    spread_parts,
)

L, D = 16, 8


@pytest.mark.parametrize("grid", [(2, 2), (2, 6), (8, 4)])
def test_parts_are_those_of_the_patch(grid: tuple[int, ...]) -> None:
    """Tokens that name their place: each block holds those of its patch, in row-major order."""
    places = torch.tensor(list(np.ndindex(*grid)), dtype=torch.float32)[None]
    gathered = gather_parts(places, grid)
    halved = tuple(length // 2 for length in grid)
    for block, place in zip(gathered[0], np.ndindex(*halved), strict=True):
        expected = [
            [2 * p + s for p, s in zip(place, step, strict=True)]
            for step in np.ndindex(*[2] * len(grid))
        ]
        assert block.view(-1, len(grid)).tolist() == expected
    assert torch.equal(spread_parts(gathered, halved), places)


def test_heads_are_mlps_on_the_parts() -> None:
    composer, decomposer = Composer(D, (4, 4), mlp_dim=5), Decomposer(D, (4, 4), mlp_dim=5)
    tokens = torch.rand(2, L, D)
    composed = composer(tokens)
    for row, column in np.ndindex(2, 2):
        parts = tokens.view(2, 4, 4, D)[
            :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2
        ].reshape(2, 4 * D)
        torch.testing.assert_close(composed[:, 2 * row + column], composer.mlp(parts))
    decomposed = decomposer(tokens).view(2, 8, 8, D)
    for row, column in np.ndindex(4, 4):
        parts = decomposer.mlp(tokens.view(2, 4, 4, D)[:, row, column]).view(2, 2, 2, D)
        torch.testing.assert_close(
            decomposed[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2], parts
        )
    widths = [
        [layer.out_features for layer in head.modules() if isinstance(layer, nn.Linear)]
        for head in (composer, decomposer)
    ]
    assert widths == [[5, D], [5, 4 * D]]


def test_composed_grid_is_even() -> None:
    with pytest.raises(ValueError, match="even"):
        Composer(D, (3, 4))
