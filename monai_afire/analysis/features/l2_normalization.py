# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Features as directions, for cosines that tell equal from almost equal."""

from __future__ import annotations

import torch
import torch.nn.functional as F

__all__ = ["SAME_COSINE", "directions"]

SAME_COSINE = 1e-9
"""Cosines of :func:`directions` that differ by less are equal: their difference is rounding."""


def directions(features: torch.Tensor) -> torch.Tensor:
    """
    Divide features by their length, in double precision where the device has it.

    Encoders whose features are all alike have cosines between 0.999999 and 1, in which float32, and TF32 even more,
    sees what is not there.

    Args:
        features: ``(..., D)``.

    Returns:
        The same shape; zeros stay zeros.

    Example:
        >>> directions(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    precise = torch.float32 if features.device.type == "mps" else torch.float64
    return F.normalize(features.to(precise), dim=-1)
