# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE's alpha by the grid: what positives and negatives weigh in the targets themselves."""

from __future__ import annotations

import pytest
import torch

from monai_afire.losses import composition_alpha, decomposition_alpha, matching_target
from monai_afire.losses.ace import matching_balance


def counted(grid: int, patch_cells: int, alpha: float, dims: int = 2) -> float:
    """Negatives to positives of the loss for the teacher's patches that have most neighbors, from a target."""
    # the small crop in the middle of the large one
    offset = torch.full((1, dims), (grid // 4) * 2)
    target = matching_target(
        offset, torch.zeros_like(offset), (grid, 2 * grid), patch_cells, dtype=torch.float64
    )
    # teacher's patches in rows: those of the large crop in the composition, of the small one in the decomposition
    rows = target[0].mT if patch_cells == 2 else target[0]
    inside = rows[rows.sum(1).isclose(rows.sum(1).max())]
    return float(((1 - alpha) * (1 - inside).sum(1) / (alpha * inside.sum(1))).mean())


@pytest.mark.parametrize(("grid", "dims"), [(14, 2), (28, 2), (8, 2), (6, 3), (10, 1)])
def test_balance_is_that_of_the_targets(grid: int, dims: int) -> None:
    assert matching_balance(0.9, grid // 2, dims) == pytest.approx(counted(grid, 2, 0.9, dims))
    assert matching_balance(0.99, 2 * grid, dims) == pytest.approx(counted(grid, 1, 0.99, dims))


def test_the_papers_values_on_two_grids() -> None:
    assert [round(counted(grid, 2, 0.9), 1) for grid in (14, 28)] == [1.0, 4.3]
    assert [round(counted(grid, 1, 0.99), 1) for grid in (14, 28)] == [1.6, 6.5]


@pytest.mark.parametrize(("grid", "dims"), [(14, 2), (28, 2), (8, 2), (6, 3), (10, 1)])
def test_alpha_keeps_the_papers_balance(grid: int, dims: int) -> None:
    assert counted(grid, 2, composition_alpha(grid, dims), dims) == pytest.approx(
        counted(14, 2, 0.9)
    )
    assert counted(grid, 1, decomposition_alpha(grid, dims), dims) == pytest.approx(
        counted(14, 1, 0.99)
    )


def test_too_small_grids_and_alphas_out_of_range() -> None:
    with pytest.raises(ValueError, match="take a finer grid"):
        composition_alpha(4)
    for alpha in (0.0, 1.0):
        with pytest.raises(ValueError, match="alpha must be between"):
            matching_balance(alpha, 7)
