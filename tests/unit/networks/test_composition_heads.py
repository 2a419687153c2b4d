# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Composer and decomposer: which tokens make a patch, and in which order its parts stand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monai_afire.networks import Composer, Decomposer

D = 8


@pytest.mark.parametrize("grid", [(2, 6), (8, 4)])
def test_heads_are_mlps_on_the_parts_in_row_major_order(grid: tuple[int, int]) -> None:
    rows, columns = grid
    composer, decomposer = Composer(D, grid, mlp_dim=5), Decomposer(D, grid, mlp_dim=5)
    tokens = torch.rand(2, rows * columns, D)
    composed = composer(tokens).view(2, rows // 2, columns // 2, D)
    for row, column in np.ndindex(rows // 2, columns // 2):
        block = tokens.view(2, *grid, D)[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        expected = composer.mlp(block.reshape(2, 4 * D))
        torch.testing.assert_close(composed[:, row, column], expected)
    decomposed = decomposer(tokens).view(2, 2 * rows, 2 * columns, D)
    for row, column in np.ndindex(rows, columns):
        expected = decomposer.mlp(tokens.view(2, *grid, D)[:, row, column]).view(2, 2, 2, D)
        block = decomposed[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        torch.testing.assert_close(block, expected)


def test_composed_grid_is_even() -> None:
    with pytest.raises(ValueError, match="even"):
        Composer(D, (3, 4))
