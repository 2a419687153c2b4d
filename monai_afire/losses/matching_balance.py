# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The weight α of ACE's matching losses on any grid of patches."""

from __future__ import annotations

import math

__all__ = ["composition_alpha", "decomposition_alpha", "matching_balance"]

# crops of 14 x 14 cells of 32 pixels, each cell one patch: what the paper's values were chosen for
_PAPER_GRID = 14
_PAPER_ALPHAS = {"composition": 0.9, "decomposition": 0.99}


def matching_balance(
    alpha: float, patches: int, spatial_dims: int = 2, sigma: float = 1.0, kernel_size: int = 3
) -> float:
    r"""
    What all negatives together weigh in :class:`monai_afire.losses.MatchingLoss`, against the positives.

    .. math:: \frac{(1 - \alpha) (M^n - S^n)}{\alpha S^n}, \qquad S = \sum_{|d| \le (k - 1) / 2} e^{-d^2 / 2 \sigma^2}

    for a teacher's patch all of whose neighbours are among the student's :math:`M^n`, as most are that have any.

    Args:
        alpha: α in (0, 1).
        patches: M, the student's patches along each of n axes: half a crop's in the composition, twice a crop's in the
            decomposition.
        spatial_dims: n.
        sigma: of the target, see :func:`monai_afire.losses.matching_target`.
        kernel_size: k, of the target.

    Returns:
        The ratio, > 0.

    Raises:
        ValueError: for an alpha out of range, or fewer patches than the target's kernel has.

    Example:
        >>> [round(matching_balance(0.9, patches), 1) for patches in (7, 14)]
        [1.0, 4.3]
        >>> [round(matching_balance(0.99, patches), 1) for patches in (28, 56)]
        [1.6, 6.5]
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
    if patches < kernel_size:
        raise ValueError(
            f"of {patches} patches per axis none has all {kernel_size} neighbours that the target's kernel reaches: "
            "take a finer grid, or give composition_alpha and decomposition_alpha as numbers"
        )
    reach = (kernel_size - 1) // 2
    positive = sum(math.exp(-(distance**2) / (2 * sigma**2)) for distance in range(-reach, reach + 1)) ** spatial_dims
    return (1 - alpha) * (patches**spatial_dims - positive) / (alpha * positive)


def composition_alpha(grid: int, spatial_dims: int = 2) -> float:
    """
    α of the composition with which negatives weigh as much as on the paper's grid of 14 x 14 with α = 0.9.

    Args:
        grid: patches of a crop along each axis, even and at least 6.
        spatial_dims: number of axes.

    Returns:
        α in (0, 1).

    Raises:
        ValueError: for too small a grid.

    Example:
        >>> round(composition_alpha(14), 4), round(composition_alpha(28), 4)
        (0.9, 0.975)
    """
    return _alpha("composition", grid // 2, _PAPER_GRID // 2, spatial_dims)


def decomposition_alpha(grid: int, spatial_dims: int = 2) -> float:
    """
    α of the decomposition with which negatives weigh as much as on the paper's grid of 14 x 14 with α = 0.99.

    Args:
        grid: patches of a crop along each axis, at least 2.
        spatial_dims: number of axes.

    Returns:
        α in (0, 1).

    Raises:
        ValueError: for too small a grid.

    Example:
        >>> round(decomposition_alpha(14), 4), round(decomposition_alpha(28), 4)
        (0.99, 0.9975)
    """
    return _alpha("decomposition", 2 * grid, 2 * _PAPER_GRID, spatial_dims)


def _alpha(branch: str, patches: int, paper_patches: int, spatial_dims: int) -> float:
    wanted = matching_balance(_PAPER_ALPHAS[branch], paper_patches)
    # the balance is a constant of the grid times (1 - alpha) / alpha
    odds = matching_balance(0.5, patches, spatial_dims) / wanted
    return odds / (1 + odds)
