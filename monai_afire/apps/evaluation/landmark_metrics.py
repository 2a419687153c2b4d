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
    Positions ``(..., dims)`` in pixels of a picture that was resized from a size to a new one.

    The corners of a picture stay its corners, so that the centers of its pixels move.
    """
    before, after = positions.new_tensor(tuple(size)), positions.new_tensor(tuple(new_size))
    return (positions + 0.5) * (after / before) - 0.5
