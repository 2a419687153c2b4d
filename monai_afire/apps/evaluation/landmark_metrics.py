# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmarks in the file's own pixels, and how many were found within a radius."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def success_rates(errors: torch.Tensor, radii: Sequence[float]) -> dict[float, float]:
    """
    Share in [0, 1] of the errors that are at most each radius, NaN without an error that counts.

    Errors are those of :func:`radial_errors`, in any shape: NaN does not count, infinite is a failure.
    """
    known = errors[~errors.isnan()]
    return {radius: (known <= radius).double().mean().item() for radius in radii}


def rescaled_positions(
    positions: torch.Tensor, size: Sequence[int], new_size: Sequence[int]
) -> torch.Tensor:
    """
    Positions after a picture was resized: its corners stay its corners, so that pixel centers move.

    Args:
        positions: ``(..., dims)`` in pixels of the picture before.
        size: of that picture, along each axis.
        new_size: of the resized one.

    Returns:
        ``(..., dims)`` in pixels of the resized picture.
    """
    before, after = positions.new_tensor(tuple(size)), positions.new_tensor(tuple(new_size))
    return (positions + 0.5) * (after / before) - 0.5
