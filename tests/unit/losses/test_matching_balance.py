# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""ACE's alpha by the grid: what positives and negatives weigh in the targets themselves."""

from __future__ import annotations

import pytest
import torch

from monai_afire.losses import composition_alpha, decomposition_alpha, matching_target


def counted(grid: int, patch_cells: int, alpha: float) -> float:
    """Negatives to positives of the loss for the teacher's patches that have most neighbors, from a target."""
    # the small crop in the middle of the large one
    offset = torch.full((1, 2), (grid // 4) * 2)
    target = matching_target(
        offset, torch.zeros_like(offset), (grid, 2 * grid), patch_cells, dtype=torch.float64
    )
    # teacher's patches in rows: those of the large crop in the composition, of the small one in the decomposition
    rows = target[0].mT if patch_cells == 2 else target[0]
    inside = rows[rows.sum(1).isclose(rows.sum(1).max())]
    return float(((1 - alpha) * (1 - inside).sum(1) / (alpha * inside.sum(1))).mean())


def test_the_papers_values_on_two_grids() -> None:
    assert [round(counted(grid, 2, 0.9), 1) for grid in (14, 28)] == [1.0, 4.3]
    assert [round(counted(grid, 1, 0.99), 1) for grid in (14, 28)] == [1.6, 6.5]


@pytest.mark.parametrize("grid", [14, 28, 8, 6])
def test_alpha_keeps_the_papers_balance(grid: int) -> None:
    assert counted(grid, 2, composition_alpha(grid)) == pytest.approx(counted(14, 2, 0.9))
    assert counted(grid, 1, decomposition_alpha(grid)) == pytest.approx(counted(14, 1, 0.99))
