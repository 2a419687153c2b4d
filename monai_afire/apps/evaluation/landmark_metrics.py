# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Landmarks in the pixels of a resized picture, such as the file's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch


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
